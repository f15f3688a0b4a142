/** Download URLs: the object store's own where it can sign them, else a route of ours. */
import type { ObjectStore } from '@fuse/object-store';
import type { Clock } from '@fuse/runtime';
import { DOWNLOAD_URL_SECONDS, downloadExpiry, downloadPath } from './download-url.ts';
import type { SignOutput } from './run-view.ts';

export interface UrlContext {
  objectStore: ObjectStore;
  signingKey: Uint8Array;
  clock: Clock;
  /** How clients reach this control plane; undefined: as the request itself did. */
  publicUrl: string | undefined;
}

export function outputSigner(context: UrlContext, requestBase: string): SignOutput {
  const { objectStore, signingKey, clock, publicUrl } = context;
  const base = (publicUrl ?? requestBase).replace(/\/+$/, '');
  return async (output) => {
    const presigned = await objectStore.presignGet(output.object_key, {
      expiresInSeconds: DOWNLOAD_URL_SECONDS,
      downloadName: downloadNameOf(output.path),
      contentType: output.content_type,
    });
    if (presigned !== undefined)
      return { url: presigned, url_expires_at: new Date(clock.now() + DOWNLOAD_URL_SECONDS * 1_000).toISOString() };
    const expiresUnixSeconds = downloadExpiry(clock.now());
    const path = downloadPath(signingKey, { runId: output.run_id, position: output.position, expiresUnixSeconds });
    return { url: `${base}${path}`, url_expires_at: new Date(expiresUnixSeconds * 1_000).toISOString() };
  };
}

export const downloadNameOf = (path: string): string => path.slice(path.lastIndexOf('/') + 1);
