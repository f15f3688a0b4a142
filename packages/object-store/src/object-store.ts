/**
 * The object store port. Keys are `[A-Za-z0-9._-]+` parts joined by "/", chosen by us, never by a guest or client.
 * No key is a folder of another (`a` and `a/b`): servers over a file system cannot hold both.
 * Contract (object-store.contract.ts runs it on every adapter):
 * - `put` is all or nothing: a reader sees the whole object or none; a failed or aborted put leaves nothing visible.
 *   The file adapter has flushed file and directory before it resolves. The last put of a key wins whole.
 * - streams keep memory flat, whatever the size; S3 uses multipart above one part.
 * - `get` verifies the sha256 recorded at put: a whole read of damaged bytes fails with `integrity_error` before it ends, with the last
 *   bytes held back, so that nobody ever has all of a damaged object.
 * - `unavailable`: the store itself is at fault (full, not reachable, rights, configuration); `details.reason` says which.
 */
import type { Readable } from 'node:stream';

export interface ObjectInfo {
  key: string;
  sizeBytes: number;
  /** Lower-case hex of the whole object. */
  sha256: string;
  contentType: string;
}

export interface PutOptions {
  /** At most 255 bytes of UTF-8 without control characters; default `application/octet-stream`. */
  contentType?: string;
  /** Refuse (`integrity_error`) when the bytes do not have this sum. */
  expectedSha256?: string;
  /** Refuse with `payload_too_large` beyond it. */
  maxBytes?: number;
  /** Rejects with the signal's reason. Once the last bytes are on their way to a server, the put is finished instead. */
  signal?: AbortSignal;
}

export interface GetOptions {
  /**
   * First byte, and one past the last; an end beyond the object means its end. `invalid_argument` when it starts beyond the object.
   * A part cannot be verified against the whole's sum.
   */
  range?: { start: number; end?: number };
  signal?: AbortSignal;
}

export interface ObjectStore extends AsyncDisposable {
  /** Fails with a clear AppError when credentials, bucket or directory are wrong. Called at start-up; sweeps what a killed put left. */
  check(): Promise<void>;
  /** Reads `body` to its end or destroys it. */
  put(key: string, body: Readable | Uint8Array, options?: PutOptions): Promise<ObjectInfo>;
  /** `not_found` when there is none. The caller reads `body` to its end or destroys it. */
  get(key: string, options?: GetOptions): Promise<{ info: ObjectInfo; body: Readable }>;
  head(key: string): Promise<ObjectInfo>;
  /** True when something was there. */
  delete(key: string): Promise<boolean>;
  /** Deletes everything below `prefix/`; returns how many objects and bytes. An empty prefix is refused. */
  deletePrefix(prefix: string): Promise<{ objects: number; bytes: number }>;
  /** Everything below `prefix/` (all there is with ""), in the order of the keys' bytes. */
  list(prefix: string): AsyncIterable<ObjectInfo | { key: string; sizeBytes: number }>;
  /**
   * A URL that anybody may GET until it expires, or undefined when this adapter has no server of its own (the file adapter:
   * the orchestrator then signs a route of its own).
   */
  presignGet(
    key: string,
    options: { expiresInSeconds: number; downloadName?: string; contentType?: string },
  ): Promise<string | undefined>;
}
