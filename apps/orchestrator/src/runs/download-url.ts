/**
 * Downloads without credentials: `/v1/downloads/<run id>/<position>?expires=<unix seconds>&signature=<hex>`. The signature covers all three under
 * the cluster's key, so that any replica can check what another one signed; it is checked before anything is looked up.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { AppError } from '@fuse/contract';

export const DOWNLOAD_URL_SECONDS = 3_600;
/** Expiries are rounded up to it, so that a URL stays the same for a while: equal answers, caches that hit. */
const EXPIRY_STEP_SECONDS = 300;

export interface SignedDownload {
  runId: string;
  position: number;
  expiresUnixSeconds: number;
}

export function downloadExpiry(nowMs: number): number {
  return Math.ceil((nowMs / 1_000 + DOWNLOAD_URL_SECONDS) / EXPIRY_STEP_SECONDS) * EXPIRY_STEP_SECONDS;
}

export function downloadPath(key: Uint8Array, download: SignedDownload): string {
  const { runId, position, expiresUnixSeconds } = download;
  return `/v1/downloads/${runId}/${position}?expires=${expiresUnixSeconds}&signature=${sign(key, download).toString('hex')}`;
}

/** 403 when it was tampered with or its time is over. */
export function checkDownload(key: Uint8Array, download: SignedDownload, signature: string, nowMs: number): void {
  const given = Buffer.from(/^[0-9a-f]{64}$/.test(signature) ? signature : '', 'hex');
  const expected = sign(key, download);
  if (given.length !== expected.length || !timingSafeEqual(given, expected))
    throw new AppError('forbidden', 'this download URL is not valid');
  if (nowMs >= download.expiresUnixSeconds * 1_000)
    throw new AppError('forbidden', 'this download URL has expired', { hint: 'read the run again for a fresh URL' });
}

function sign(key: Uint8Array, { runId, position, expiresUnixSeconds }: SignedDownload): Buffer {
  return createHmac('sha256', key).update(`fuse download 1\n${runId}\n${position}\n${expiresUnixSeconds}`).digest();
}
