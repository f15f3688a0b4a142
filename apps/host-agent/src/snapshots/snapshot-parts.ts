/**
 * A snapshot as flat content, however it is kept: `memory` (with memory) is the guest's whole address space, `device` the saved devices,
 * `disk` the writable disk. Opened only after the files under it matched their digests; closed by whoever opened it.
 */
export const snapshotPartNames = ['memory', 'device', 'disk'] as const;
export type SnapshotPartName = (typeof snapshotPartNames)[number];

export interface SnapshotPart {
  name: SnapshotPartName;
  sizeBytes: number;
  /** Where data may be, sorted and without overlap; everything else reads as zeros. */
  extents: readonly { start: number; end: number }[];
  /** Fills the whole of `target` from byte `position`; never asked beyond `sizeBytes`. */
  read(target: Buffer, position: number): Promise<void>;
}

export interface SnapshotParts extends AsyncDisposable {
  parts: readonly SnapshotPart[];
}
