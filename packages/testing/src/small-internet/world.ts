/** Who is where in the small internet. The addresses are public ones, except where that is the point; nothing of it leaves the namespace. */
import { z } from 'zod';

export const world = {
  resolver: '151.101.0.53',
  /** Several names, one address. */
  web: '151.101.1.10',
  web6: '2a04:4e42:1::10',
  /** Somebody else's. */
  other: '151.101.2.20',
  private: '10.1.2.3',
  carrier: '100.64.3.4',
  unique6: 'fd12:3456::7',
  metadata: '169.254.169.254',
  metadata6: 'fd00:ec2::254',
  /** Of the host that guests' connections leave from. */
  host: '151.101.9.2',
  host6: '2a04:4e42:9::2',
  /** The host's next hop. */
  router: '151.101.9.1',
  router6: '2a04:4e42:9::1',
} as const;

/** `banner`: the server speaks first, as that of SSH does. */
export const ports = { banner: 22, http: 80, tls: 443, httpElsewhere: 8_080, echo: 9_000 } as const;

/** Addresses of one name are answered all at once, of a `turns` one after the other, the last for ever. */
export const NameRecord = z.object({
  a: z.array(z.string()).optional(),
  aaaa: z.array(z.string()).optional(),
  cname: z.string().optional(),
  /** Of `a`: one list for each look-up. */
  turns: z.array(z.array(z.string())).optional(),
  ttl: z.number().int().optional(),
  /** The answer comes this much later. */
  delayMs: z.number().optional(),
});
export type NameRecord = z.infer<typeof NameRecord>;
export type Zone = Record<string, NameRecord>;

export const zone: Zone = {
  'one.shop.org': { a: [world.web] },
  'two.shop.org': { a: [world.web] },
  'both.shop.org': { a: [world.web], aaaa: [world.web6] },
  'six.shop.org': { aaaa: [world.web6] },
  'alias.shop.org': { cname: 'one.shop.org' },
  'evil.org': { a: [world.other] },
  'www.evil.org': { a: [world.other] },
  'private.shop.org': { a: [world.private] },
  'carrier.shop.org': { a: [world.carrier] },
  'unique6.shop.org': { aaaa: [world.unique6] },
  'mapped.shop.org': { aaaa: [`::ffff:${world.private}`] },
  'metadata.shop.org': { a: [world.metadata], aaaa: [world.metadata6] },
  'loopback.shop.org': { a: ['127.0.0.1'], aaaa: ['::1'] },
  'host.shop.org': { a: [world.host], aaaa: [world.host6] },
  'rebind.shop.org': { turns: [[world.web], [world.private]], ttl: 0 },
  'mixed.shop.org': { a: [world.private, world.web] },
};

export const SeenQuery = z.object({
  name: z.string(),
  type: z.string(),
  transport: z.enum(['udp', 'tcp']),
  from: z.string(),
});
export type SeenQuery = z.infer<typeof SeenQuery>;

export const SeenConnection = z.object({
  /** `http`, `tls`, `echo`, `banner`, or `host`: the service that the host itself has. */
  service: z.string(),
  address: z.string(),
  port: z.number(),
  /** Server name of TLS. */
  serverName: z.string().optional(),
  /** Of an HTTP request, `host` header and path. */
  host: z.string().optional(),
  path: z.string().optional(),
});
export type SeenConnection = z.infer<typeof SeenConnection>;

/** What the process in the namespace is told at its start. */
export const ServerOrder = z.object({
  part: z.enum(['internet', 'host']),
  zone: z.record(z.string(), NameRecord),
  tls: z.object({ cert: z.string(), key: z.string() }),
});
export type ServerOrder = z.infer<typeof ServerOrder>;

export const ServerReport = z.object({ queries: z.array(SeenQuery), connections: z.array(SeenConnection) });
export type ServerReport = z.infer<typeof ServerReport>;
