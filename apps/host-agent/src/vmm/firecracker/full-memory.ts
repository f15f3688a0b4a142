/** The whole memory of a VM as Firecracker has written it out, which it does without holes. What is zero is left out of what becomes of it. */
import { type FileHandle, open, rm } from 'node:fs/promises';
import { AppError } from '@fuse/contract';
import { PAGE_BYTES } from '../../snapshots/memory/layer-file.ts';
import { isZeroPage, LayerWriter } from '../../snapshots/memory/layer-writer.ts';
import { PIECE_BYTES, pump } from '../../snapshots/memory/pump.ts';
import { readFully, writeFully } from '../../snapshots/memory/whole-io.ts';

const PIECE_PAGES = PIECE_BYTES / PAGE_BYTES;

/** A sparse memory file at `path`. One that is there is filled where it is zero. */
export async function copyMemory(
  from: FileHandle,
  path: string,
  memoryBytes: number,
  signal?: AbortSignal,
): Promise<void> {
  const target = await open(path, 'r+');
  try {
    await target.truncate(0);
    await target.truncate(memoryBytes);
    await eachPiece(
      from,
      memoryBytes,
      async (bytes, position) => {
        if (!isZero(bytes)) await writeFully(target, bytes, position);
      },
      signal,
    );
  } finally {
    await target.close();
  }
}

/** A layer of all that is not zero, over an empty memory file. Nothing is left of a failure. */
export async function layerOfMemory(
  from: FileHandle,
  layerPath: string,
  memoryBytes: number,
  signal?: AbortSignal,
): Promise<void> {
  try {
    await LayerWriter.write(layerPath, memoryBytes, (layer) =>
      eachPiece(
        from,
        memoryBytes,
        (bytes, position) => {
          const zero = Array.from({ length: bytes.length / PAGE_BYTES }, (_, index) =>
            isZeroPage(bytes, index * PAGE_BYTES),
          );
          return layer.append(position / PAGE_BYTES, bytes, (index) => zero[index] === false);
        },
        signal,
      ),
    );
  } catch (error) {
    await rm(layerPath, { force: true });
    throw error;
  }
}

async function eachPiece(
  from: FileHandle,
  memoryBytes: number,
  write: (bytes: Buffer, position: number) => Promise<void>,
  signal?: AbortSignal,
): Promise<void> {
  const { size } = await from.stat();
  if (size !== memoryBytes)
    throw new AppError('unavailable', `Firecracker wrote ${size} bytes of memory, not ${memoryBytes}`);
  await pump(
    {
      pieces: pieces(memoryBytes / PAGE_BYTES),
      read: async ({ firstPage, pages }, buffer) => {
        const bytes = buffer.subarray(0, pages * PAGE_BYTES);
        await readFully(from, bytes, firstPage * PAGE_BYTES);
        return bytes;
      },
      write: ({ firstPage }, bytes) => write(bytes, firstPage * PAGE_BYTES),
    },
    signal,
  );
}

function* pieces(pages: number): Generator<{ firstPage: number; pages: number }> {
  for (let firstPage = 0; firstPage < pages; firstPage += PIECE_PAGES)
    yield { firstPage, pages: Math.min(PIECE_PAGES, pages - firstPage) };
}

function isZero(bytes: Buffer): boolean {
  for (let at = 0; at < bytes.length; at += PAGE_BYTES) if (!isZeroPage(bytes, at)) return false;
  return true;
}
