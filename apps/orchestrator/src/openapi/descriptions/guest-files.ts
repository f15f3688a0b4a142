import { type FileOperation, FileWritten, fileOperations, TarIn, WatchEvent } from '@fuse/contract';
import { bytes, ndjson, type Operation, type Operations, tar } from '../operation.ts';

const FILES = '/v1/environments/:id/files';

const summaries: Record<FileOperation, string> = {
  stat: 'What a path is',
  list: 'A directory, or the whole tree below it',
  mkdir: 'Make a directory',
  move: 'Move or rename',
  copy: 'Copy',
  remove: 'Remove',
  symlink: 'Make a symlink',
  chmod: 'Change permissions',
  chown: 'Change the owner',
  glob: 'Paths that match',
  search: 'Lines that match',
  edit: 'Replace text in a file',
  patch: 'Apply a unified diff',
};

const operations = Object.fromEntries(
  Object.entries(fileOperations).map(([name, { response }]): [string, Operation] => [
    `POST ${FILES}/${name}`,
    { tag: 'files in environments', summary: summaries[name as FileOperation], answers: { 200: response } }, // its keys are that
  ]),
);

export const guestFileOperations: Operations = {
  [`GET ${FILES}`]: {
    tag: 'files in environments',
    summary: 'A file, or a range of it',
    answers: { 200: bytes, 206: bytes },
  },
  [`HEAD ${FILES}`]: { tag: 'files in environments', summary: 'Its size, mode and times', answers: { 200: null } },
  [`PUT ${FILES}`]: {
    tag: 'files in environments',
    summary: 'Write a file',
    body: bytes,
    bodyOptional: true,
    answers: { 201: FileWritten },
  },
  [`GET ${FILES}/watch`]: {
    tag: 'files in environments',
    summary: 'Changes below a path, as they happen',
    answers: { 200: ndjson(WatchEvent) },
  },
  [`POST ${FILES}/:operation`]: {
    tag: 'files in environments',
    summary: 'Any other word here is no operation: 404',
    answers: {},
  },
  ...operations,
  'GET /v1/environments/:id/tar': {
    tag: 'files in environments',
    summary: 'A directory or file as a tar',
    answers: { 200: tar },
  },
  'PUT /v1/environments/:id/tar': {
    tag: 'files in environments',
    summary: 'Extract a tar below a directory',
    body: tar,
    answers: { 200: TarIn },
  },
};
