/**
 * What an export consists of, as JSON in the object store: enough to make the snapshot again on a host that never had it. Nothing in
 * it is secret: a snapshot's environment variables are the orchestrator's. Its digest is over all the rest.
 */
import { createHash } from 'node:crypto';
import { AppError } from '@fuse/contract';
import { ChunkDigest, Shape, SnapshotId } from '@fuse/host-protocol';
import { z } from 'zod';
import { snapshotPartNames } from '../snapshot-parts.ts';
import { MadeOn } from '../snapshot-record.ts';
import { MAX_CHUNK_BYTES, MIN_CHUNK_BYTES } from './chunk.ts';

const FORMAT = 1;
const MIB = 1024 ** 2;
const MAX_PART_BYTES = 2 ** 46;
/** Some 800 000 chunks. */
export const MAX_MANIFEST_BYTES = 64 * MIB;

const word = (max: number) => z.string().max(max);

export const ManifestPart = z.object({
  name: z.enum(snapshotPartNames),
  size_bytes: z.number().int().nonnegative().max(MAX_PART_BYTES),
  /** Number of the chunk within the part, ascending, and the sha256 of its content. What no chunk covers is zero. */
  chunks: z.array(z.tuple([z.number().int().nonnegative(), ChunkDigest])),
});
export type ManifestPart = z.infer<typeof ManifestPart>;

const ManifestContent = z.object({
  format: z.literal(FORMAT),
  chunk_prefix: word(512),
  chunk_bytes: z.number().int().min(MIN_CHUNK_BYTES).max(MAX_CHUNK_BYTES),
  snapshot: z.object({
    id: SnapshotId,
    tag: word(128),
    vm_id: word(63),
    image: word(128),
    shape: Shape,
    made_on: MadeOn,
    include_memory: z.boolean(),
    network_card: z.boolean().optional(),
    parent_id: word(63).optional(),
    created_at: word(64),
  }),
  parts: z.array(ManifestPart).max(snapshotPartNames.length),
});
export type ManifestContent = z.infer<typeof ManifestContent>;

const Manifest = ManifestContent.extend({ digest: ChunkDigest });

/** payload_too_large when there are more chunks than a manifest may name. */
export function encodeManifest(content: Omit<ManifestContent, 'format'>): Buffer {
  const parsed = ManifestContent.parse({ ...content, format: FORMAT });
  const bytes = Buffer.from(JSON.stringify({ ...parsed, digest: digestOf(parsed) }));
  if (bytes.length > MAX_MANIFEST_BYTES)
    throw new AppError('payload_too_large', 'the snapshot is too large for the object store');
  return bytes;
}

/** integrity_error for whatever is not a whole manifest. */
export function decodeManifest(bytes: Buffer): ManifestContent {
  const parsed = Manifest.safeParse(parseJson(bytes));
  if (!parsed.success) throw damaged('it is not what this version reads', parsed.error);
  const { digest, ...content } = parsed.data;
  if (digestOf(content) !== digest) throw damaged('it does not match its digest');
  checkParts(content);
  return content;
}

function checkParts({ snapshot, chunk_bytes, parts }: ManifestContent): void {
  const wanted = snapshot.include_memory ? snapshotPartNames : (['disk'] as const);
  if (parts.map(({ name }) => name).join() !== wanted.join()) throw damaged('it has other parts than it should');
  for (const { name, size_bytes, chunks } of parts) {
    if (name === 'memory' && size_bytes !== snapshot.shape.ram_mb * MIB) throw damaged('its memory has another size');
    let next = 0;
    for (const [number] of chunks) {
      if (number < next || number * chunk_bytes >= size_bytes) throw damaged('a chunk is out of place');
      next = number + 1;
    }
  }
}

/** The schema puts the fields in one order, whatever order they came in. */
const digestOf = (content: ManifestContent): string =>
  createHash('sha256').update(JSON.stringify(content)).digest('hex');

function parseJson(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString('utf8'));
  } catch (cause) {
    throw damaged('it is not JSON', cause);
  }
}

const damaged = (what: string, cause?: unknown): AppError =>
  new AppError('integrity_error', `the manifest of the snapshot is damaged: ${what}`, { cause });
