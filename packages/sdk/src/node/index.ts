/** What needs Node: files of this machine up and down as streams, and a fetch without hidden time limits. */
export { nodeFetch } from './node-fetch.ts';
export { saveOutput } from './save-output.ts';
export { uploadFile } from './upload-file.ts';
