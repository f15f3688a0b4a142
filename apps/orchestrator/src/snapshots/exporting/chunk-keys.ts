/** Keys of what exports leave in the object store, and the way back. A chunk's key is its content; a manifest's, its snapshot. */
export const CHUNK_PREFIX = 'snapshots/chunks';
export const MANIFEST_PREFIX = 'snapshots/manifests';

export const chunkKey = (sha256: string): string => `${CHUNK_PREFIX}/${sha256.slice(0, 2)}/${sha256}`;
export const manifestKey = (snapshotId: string): string => `${MANIFEST_PREFIX}/${snapshotId}`;

/** Undefined for what is no chunk's key. */
export function chunkAt(key: string): string | undefined {
  const sha256 = /\/([0-9a-f]{64})$/.exec(key)?.[1];
  return sha256 !== undefined && chunkKey(sha256) === key ? sha256 : undefined;
}

export function snapshotOfManifest(key: string): string | undefined {
  const id = key.slice(MANIFEST_PREFIX.length + 1);
  return manifestKey(id) === key && !id.includes('/') ? id : undefined;
}
