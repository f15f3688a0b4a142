/** Everything of contract's `fileOperations`, one request each. */
import { type FileOperation, type FileRequest, type FileResponse, fileOperations } from '@fuse/contract';
import { callJson } from './call.ts';
import type { GuestChannel } from './channel.ts';

/** Trees may be walked, copied, searched. */
const ANSWER_MS = 600_000;
/** Done twice is done once. The others are not asked again when the channel was cut: whether they were done is not known. */
const repeatable: ReadonlySet<FileOperation> = new Set(['stat', 'list', 'glob', 'search', 'chmod', 'chown']);

export function guestFileOperation<Name extends FileOperation>(
  channel: GuestChannel,
  name: Name,
  body: FileRequest<Name>,
  signal?: AbortSignal,
): Promise<FileResponse<Name>> {
  const call = {
    method: 'POST',
    path: `/v1/files/${name}`,
    what: `a file operation (${name})`,
    body,
    schema: fileOperations[name].response,
    deadlineMs: ANSWER_MS,
    signal,
    ...(repeatable.has(name) ? {} : { attempts: 1 }),
  } as const;
  return callJson(channel, call) as Promise<FileResponse<Name>>; // `Name`'s own, which indexing hides
}
