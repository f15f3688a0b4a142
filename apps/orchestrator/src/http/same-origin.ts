/**
 * Browsers send cookies, and reach servers that ask for no credential, on behalf of any page. What changes something is taken from our own pages alone; programs
 * send no Origin.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { AppError } from '@fuse/contract';

/** `publicUrl`: where our pages come from, when a proxy changes the Host. */
export function requireSameOrigin(headers: IncomingHttpHeaders, publicUrl: string | undefined): void {
  const { origin, host } = headers;
  if (origin === undefined) {
    const site = headers['sec-fetch-site'];
    if (site === undefined || site === 'same-origin' || site === 'none') return;
  } else if (URL.canParse(origin) && [host, publicUrl && new URL(publicUrl).host].includes(new URL(origin).host))
    return;
  throw new AppError('forbidden', `pages of ${origin ?? 'another site'} may not do this with the session of this one`, {
    hint: 'Programs send the header "Authorization: Bearer <token>".',
  });
}
