/** Addresses that may ask at all (api.md 0.2, 0.4): the socket's peer counts, whatever headers say. The probes answer everybody. */
import { BlockList, isIP } from 'node:net';
import { AppError } from '@fuse/contract';
import type { App } from './http-server.ts';
import './route-config.ts';

const MAPPED = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i;

export interface Subnet {
  address: string;
  prefixBits: number;
  family: 'ipv4' | 'ipv6';
}

/** `10.0.0.0/8`, `2001:db8::/32`, `192.0.2.7`; undefined: it is none. A mapped one (`::ffff:10.0.0.0/104`) is that of IPv4. */
export function parseCidr(text: string): Subnet | undefined {
  const [given = '', bits, ...more] = text.split('/');
  if (more.length > 0 || (bits !== undefined && !/^\d{1,3}$/.test(bits))) return undefined;
  const mapped = MAPPED.exec(given)?.[1];
  const address = mapped ?? given;
  const version = isIP(address);
  if (version === 0 || address.includes('%')) return undefined;
  const width = version === 4 ? 32 : 128;
  const prefixBits = bits === undefined ? width : Number(bits) - (mapped === undefined ? 0 : 96);
  if (prefixBits < 0 || prefixBits > width) return undefined;
  return { address, prefixBits, family: version === 4 ? 'ipv4' : 'ipv6' };
}

export class AllowList {
  /** Apart: in one list, `::/0` would be IPv4's addresses too. */
  readonly #lists = { ipv4: new BlockList(), ipv6: new BlockList() };

  constructor(subnets: readonly Subnet[]) {
    for (const { address, prefixBits, family } of subnets) this.#lists[family].addSubnet(address, prefixBits, family);
  }

  /** Throws 403 `forbidden`. */
  check(remoteAddress: string | undefined): void {
    const bare = (remoteAddress ?? '').replace(/%.*$/, '');
    const address = MAPPED.exec(bare)?.[1] ?? bare;
    const version = isIP(address);
    if (version === 0) throw new AppError('forbidden', 'could not parse remote address');
    const family = version === 4 ? 'ipv4' : 'ipv6';
    if (!this.#lists[family].check(address, family)) throw new AppError('forbidden', 'source address not in allowlist');
  }
}

export function installAllowList(app: App, allowList: AllowList | undefined): void {
  if (allowList === undefined) return;
  app.addHook('onRequest', async ({ routeOptions, raw }) => {
    if (routeOptions.config.probe !== true) allowList.check(raw.socket.remoteAddress);
  });
}
