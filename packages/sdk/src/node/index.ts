/** What needs Node: files of this machine up and down as streams, ports of this machine, and a fetch and WebSockets without hidden limits. */
export { type CopyInOptions, copyIn } from './copy-in.ts';
export type { Copied, CopyOptions, CopyProgress, Skipped } from './copy-options.ts';
export { copyOut } from './copy-out.ts';
export { type ForwardedPort, type ForwardPortOptions, forwardPort } from './forward-port.ts';
export { nodeFetch } from './node-fetch.ts';
export { nodeWebSockets } from './node-web-sockets.ts';
export { UnsafeArchiveError } from './safe-target.ts';
export { saveOutput } from './save-output.ts';
export { uploadFile } from './upload-file.ts';
