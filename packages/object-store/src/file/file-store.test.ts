import { open, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { temporaryDirectory } from '@fuse/testing';
import { describeObjectStore } from '../object-store.contract.ts';
import { FileStore } from './file-store.ts';

describeObjectStore('files', async () => {
  const directory = await temporaryDirectory();
  const root = join(directory.path, 'made', 'by', 'check');
  return {
    store: new FileStore(root),
    keepsConnections: false,
    remains: async () => {
      const entries = await readdir(root, { recursive: true });
      return entries.filter((entry) => entry !== 'objects' && entry !== 'tmp');
    },
    damage: async (key, offset) => {
      const file = await open(join(root, 'objects', key), 'r+');
      const { buffer } = await file.read(Buffer.alloc(1), 0, 1, offset);
      await file.write(Buffer.from([(buffer[0] ?? 0) ^ 1]), 0, 1, offset);
      await file.close();
    },
    [Symbol.asyncDispose]: () => directory[Symbol.asyncDispose](),
  };
});
