import { isIP } from 'node:net';

const LOOPBACK: readonly string[] = ['localhost', '127.0.0.1', '::1'];
const ANY: readonly string[] = ['0.0.0.0', '::'];

/**
 * Whether a `Host` header is one that a browser sends who was given this server's address: a name that somebody else has pointed here is not. The port may be another one, that of a
 * tunnel to this machine.
 */
export function isAllowedHost(header: string | undefined, listensOn: readonly string[]): boolean {
  const [, bracketed, plain] =
    /^(?:\[([0-9a-f:.]+)\]|([^:[\]/@\s]+))(?::\d{1,5})?$/.exec(header?.toLowerCase() ?? '') ?? [];
  const host = bracketed ?? plain ?? '';
  if (LOOPBACK.includes(host) || listensOn.includes(host)) return true;
  return isIP(host) !== 0 && listensOn.some((each) => ANY.includes(each));
}
