/** What is tried from inside a VM: calls of attempts.py, by the policy that they are tried under, and what is to come of each. */
import { world } from '@fuse/testing';

/**
 * `refused`: the guest is told so. `unheard`: that, or nothing comes back. `here`: answered on the VM's own link. `reached`: it is allowed. `either`: what the
 * guest sees does not matter, but what left does.
 */
type Outcome = 'refused' | 'unheard' | 'here' | 'reached' | 'either';

/** `alone`: not at the same time as others. */
export type Attempt = readonly [name: string, code: string, outcome?: Outcome, alone?: 'alone'];

export interface Batch {
  /** The policy, in a word. */
  under: string;
  /**
   * What of it may leave the host: nothing; look-ups of allowed names; besides these connections to allowed addresses, over which nothing is said; or such that carry
   * requests which begin with `/ok`.
   */
  leaves: 'nothing' | 'look-ups' | 'connections' | 'requests';
  attempts: readonly Attempt[];
}

export const names = {
  'ssh.shop.org': { a: [world.web] },
  'a.wild.org': { a: [world.web] },
  'b.a.wild.org': { a: [world.web] },
  'wild.org': { a: [world.other] },
  'evilwild.org': { a: [world.other] },
  'bad.wild.org': { a: [world.other] },
  'friend.org': { a: [world.other] },
  'towards.shop.org': { cname: 'private.shop.org' },
  'nat64.shop.org': { aaaa: ['64:ff9b::a01:203', '64:ff9b::a9fe:a9fe'] },
  'sixtofour.shop.org': { aaaa: ['2002:a01:203::1'] },
  'everybody.shop.org': { a: ['255.255.255.255'] },
  'zero.shop.org': { a: ['0.0.0.0'], aaaa: ['::'] },
  'gateway.shop.org': { a: ['192.0.0.1', '198.18.0.5'] },
  'local6.shop.org': { aaaa: ['fe80::1', 'ff02::1', 'fec0::1'] },
  'listed.shop.org': { a: ['100.100.100.200', '168.63.129.16', '192.0.0.192'] },
};

/** Allowed by name, and of no use: what they resolve to is forbidden. */
export const traps = [
  'private',
  'carrier',
  'unique6',
  'mapped',
  'metadata',
  'loopback',
  'host',
  'towards',
  'nat64',
  'sixtofour',
  'everybody',
  'zero',
  'gateway',
  'local6',
  'listed',
].map((label) => `${label}.shop.org`);

/** Ranges that no rule opens, whatever it says. */
const closedRanges = [
  '169.254.0.0/16:*',
  '10.0.0.0/8:*',
  '100.64.0.0/10:*',
  '127.0.0.0/8:*',
  '192.0.0.0/24:*',
  '198.18.0.0/15:*',
  '151.101.9.0/24:*',
  '255.255.255.252/30:*',
  '0.0.0.0/8:*',
  '[fd00::/8]:*',
];

export const allowlist = {
  egress: 'allowlist' as const,
  allow: [
    'one.shop.org',
    'both.shop.org',
    'six.shop.org',
    'alias.shop.org',
    'mixed.shop.org',
    'rebind.shop.org',
    'ssh.shop.org:22,8080',
    '*.wild.org',
    `${world.other.replace(/\d+$/, '0')}/24:8080`,
    ...traps,
    ...closedRanges,
  ],
  deny: ['bad.wild.org'],
};

export const denying = {
  egress: 'internet' as const,
  deny: ['evil.org', '*.evil.org', `${world.other.replace(/\d+$/, '0')}/24`],
};

const LONG = `${'x'.repeat(60)}.${'y'.repeat(60)}.${'z'.repeat(60)}`;

const withoutCard: Batch = {
  under: 'none',
  leaves: 'nothing',
  attempts: [
    ['a network card', 'cards()'],
    ['frames on a card', 'any_card()'],
    ['a look-up', `dns('one.shop.org')`],
    ['a look-up at somebody else', `dns('one.shop.org', server='${world.resolver}')`],
    ['a look-up over TCP', `dns('one.shop.org', server='8.8.8.8', over='tcp')`],
    ['DNS over TLS', `tcp('${world.resolver}', 853)`],
    ['a look-up by the library', `tcp('one.shop.org', 80)`],
    ['an address', `tcp('${world.web}', 80)`],
    ['an IPv6 address', `tcp('${world.web6}', 80)`],
    ['a datagram', `udp('${world.web}', 443)`],
    ['an echo request', `ping('${world.web}')`],
    ['an echo request over IPv6', `ping6('${world.web6}')`],
    ['a raw protocol', `raw(253, '${world.web}')`],
    ['metadata', `tcp('${world.metadata}', 80)`],
    ['the host by the VM sockets', 'first("vsock(2, 22)", "vsock(2, 1024)", "vsock(0, 1)")'],
    ['the same with a route into the loopback', `with_route("tcp('${world.web}', 80)")`, 'unheard', 'alone'],
  ],
};

const lookUps: Attempt[] = [
  ['an address of no name that is allowed', `dns('evil.org')`],
  ['a look-up at a public resolver', `dns('evil.org', server='8.8.8.8')`],
  ['a look-up at a real resolver', `dns('evil.org', server='${world.resolver}')`],
  ['a look-up over TCP', `dns('evil.org', over='tcp')`],
  ['a look-up over TCP at a real resolver', `dns('evil.org', server='${world.resolver}', over='tcp')`],
  ['an allowed name at a public resolver', `dns('one.shop.org', server='8.8.8.8')`, 'here'],
  ['an allowed name over TCP at a real one', `dns('one.shop.org', server='${world.resolver}', over='tcp')`, 'here'],
  ...(
    [
      ['NS', 2],
      ['NULL', 10],
      ['MX', 15],
      ['TXT', 16],
      ['AAAA', 28],
      ['SRV', 33],
      ['HTTPS', 65],
      ['AXFR', 252],
      ['ANY', 255],
    ] as const
  ).flatMap(([kind, number]): Attempt[] => [
    [`${kind} of an allowed name`, `dns('one.shop.org', ${number})`],
    [`${kind} of another`, `dns('data.evil.org', ${number})`],
  ]),
  ['a zone transfer over TCP', `dns('shop.org', 252, over='tcp')`],
  ['a tunnel of long labels', `dns('${LONG}.evil.org', 16)`],
  ['a tunnel of long labels beneath an allowed name', `dns('${LONG}.one.shop.org', 16)`],
  ['a tunnel of long labels beneath a wildcard', `dns('${LONG}.wild.org', 16)`],
  ['the same for an address', `dns('${LONG}.wild.org')`, 'here'],
  ['odd bytes in a label', `dns('a b\\x00c.wild.org')`],
  ['the root', `dns('.', 2)`],
  ['DNS over TLS at a resolver', `tls('${world.resolver}', None, 853)`],
  ['DNS over TLS at an allowed name', `tls('one.shop.org', 'one.shop.org', 853)`],
  ['DNS over HTTPS at a resolver', `tls('${world.resolver}', None, path='/dns-query')`],
  ['DNS over HTTPS beside an allowed name', `tls('one.shop.org', 'dns.evil.org', path='/dns-query')`],
  ['mDNS', `udp('224.0.0.251', 5353)`, 'unheard'],
  ['DNS to everybody', `dns('one.shop.org', server='255.255.255.255')`, 'unheard'],
];

const spellings: Attempt[] = [
  ['metadata', `http('${world.metadata}')`],
  ['metadata in decimal', `http('2852039166')`],
  ['metadata in octal', `http('0251.0376.0251.0376')`],
  ['metadata in hexadecimal', `first("http('0xa9fea9fe')", "http('0xa9.0xfe.0xa9.0xfe')")`],
  ['metadata in few parts', `first("http('169.16689662')", "http('169.254.43518')")`],
  ['metadata as mapped IPv6', `first("http('::ffff:169.254.169.254')", "http('::ffff:a9fe:a9fe')")`],
  ['metadata over IPv6', `http('${world.metadata6}')`],
  ['metadata on another port', `first("tcp('${world.metadata}', 8080)", "tcp('${world.metadata}', 443)")`],
  ['other metadata addresses', `first("http('169.254.170.2')", "http('100.100.100.200')", "http('168.63.129.16')")`],
  ['metadata by its usual name', `http('metadata.google.internal')`],
  ['everybody', `first("http('255.255.255.255')", "http('255.255.255.254')", "http('255.255.255.253')")`],
  ['the address of nobody', `http('192.0.0.1', to='0.0.0.0')`],
  ['the loopback of the host', `first("http('127.0.0.1')", "http('127.1.2.3')", "http('localhost')")`],
  [
    'the host that connections leave from',
    `first("http('${world.host}')", "tcp('${world.host}', 22)", "http('${world.host6}')")`,
  ],
  [
    'private addresses',
    `first("http('${world.private}')", "tcp('${world.private}', 9000)", "http('172.16.0.1')", "http('192.168.1.1')")`,
  ],
  ['addresses of carriers', `http('${world.carrier}')`],
  [
    'special ranges',
    `first("http('192.0.2.1')", "http('198.51.100.1')", "http('203.0.113.1')", "http('240.0.0.1')", "http('192.88.99.1')")`,
  ],
  [
    'unique local and link-local IPv6',
    `first("http('${world.unique6}')", "http('fe80::1%eth0')", "http('64:ff9b::a9fe:a9fe')")`,
  ],
  [
    'the gateway on other ports',
    `first("tcp('192.0.0.1', 15001)", "tcp('192.0.0.1', 80)", "tcp('192.0.0.1', 22)", "tcp('192.0.0.1', 8080)")`,
  ],
  ['the gateway by UDP', `scan_udp('192.0.0.1', [1, 123, 161, 443, 500, 514, 1900, 4500, 5353, 15001, 51820, 65535])`],
  ['DHCP', 'first("udp(\'192.0.0.1\', 67)", "udp(\'192.0.0.1\', 547)")', 'unheard'],
  [
    'neighbours on the link',
    `first("tcp('192.0.0.3', 7777)", "tcp('192.0.0.4', 7777)", "tcp('192.0.0.6', 7777)")`,
    'unheard',
  ],
  [
    'addresses of looked-up names that it was not given',
    'first("tcp(\'198.18.0.1\', 80)", "tcp(\'198.19.255.254\', 80)")',
  ],
];

const protocols: Attempt[] = [
  ['an echo request', `ping('${world.web}')`],
  ['an echo request to the gateway', `ping('192.0.0.1')`],
  ['an ICMP timestamp request', `icmp('${world.web}', 13)`],
  ['QUIC', `udp('${world.web}', 443, b'\\xc0' + bytes(1199))`],
  ['datagrams to any port', `scan_udp('${world.web}', [1, 80, 123, 161, 500, 853, 3478, 5060, 51820, 65535])`],
  ['IP in IP', `raw(4, '${world.web}')`],
  ['IPv6 in IP', `raw(41, '${world.web}')`],
  ['GRE', `raw(47, '${world.web}')`],
  ['ESP', `raw(50, '${world.web}')`],
  ['SCTP', `raw(132, '${world.web}')`],
  ['UDP-Lite', `raw(136, '${world.web}')`],
  ['an experimental protocol', `raw(253, '${world.web}')`],
  ['a literal IPv6 address', `tcp('${world.web6}', 80)`],
  [
    'IPv6 with an address and a router of its own making',
    `with_ipv6("first(\\"tcp('${world.web6}', 80)\\", \\"ping6('${world.web6}')\\", \\"udp('${world.web6}', 53)\\")")`,
    'unheard',
    'alone',
  ],
  [
    'another address of its own making',
    `with_address('192.0.0.5', "bound_to('192.0.0.5', '${world.web}', 80)")`,
    'unheard',
    'alone',
  ],
  [
    'a private address of its own making',
    `with_address('10.1.2.2', "bound_to('10.1.2.2', '${world.private}', 80)")`,
    'unheard',
    'alone',
  ],
];

/** Frames as the guest's kernel would not send them. */
const frames: Attempt[] = (
  [
    ['a frame from another hardware address', `frame(syn('${world.web}'), source=bytes.fromhex('02fc00000099'))`],
    ['a frame from the gateway’s hardware address', `frame(syn('${world.web}'), source=GATEWAY_MAC)`],
    ['a packet from another address', `frame(syn('${world.web}', source='192.0.0.3'))`],
    ['a packet from the gateway’s address', `frame(syn('${world.web}', source='192.0.0.1'))`],
    ['a packet from a public address', `frame(syn('${world.private}', source='${world.web}'))`],
    ['a packet from the loopback', `frame(syn('127.0.0.1', 15001, source='127.0.0.1'))`],
    ['a packet to the loopback', `frame(syn('127.0.0.1', 15001))`],
    ['a datagram to the loopback', `frame(datagram_packet('127.0.0.1'))`],
    ['a look-up from another address', `frame(datagram_packet('192.0.0.1', source='192.0.0.3'))`],
    ['multicast', `frame(datagram_packet('224.0.0.1'), to=bytes.fromhex('01005e000001'))`],
    ['IGMP', `frame(packet('224.0.0.22', 2, bytes(8)), to=bytes.fromhex('01005e000016'))`],
    ['a broadcast', `frame(datagram_packet('255.255.255.255'), to=EVERYBODY)`],
    ['a broadcast of the link', `frame(datagram_packet('192.0.0.7'), to=EVERYBODY)`],
    ['a look-up in a broadcast frame', `frame(datagram_packet('192.0.0.1'), to=EVERYBODY)`],
    ['the first fragment of a connection', `frame(syn('${world.web}', fragment=0x2000))`],
    ['a later fragment', `frame(packet('${world.web}', 6, bytes(64), fragment=0x0010))`],
    ['a fragment of a look-up', `frame(datagram_packet('192.0.0.1', fragment=0x2000))`],
    ['a source route', `frame(syn('${world.web}', options=bytes([0x83, 7, 4, 10, 1, 2, 3, 0])))`],
    ['a strict source route', `frame(syn('${world.web}', options=bytes([0x89, 7, 4, 10, 1, 2, 3, 0])))`],
    ['a record of the route', `frame(syn('${world.web}', options=bytes([7, 7, 4, 0, 0, 0, 0, 0])))`],
    ['a router alert', `frame(datagram_packet('192.0.0.1', options=bytes([0x94, 4, 0, 0])))`],
    ['ARP for another address', `frame(arp('192.0.0.3'), 0x0806, to=EVERYBODY)`],
    ['ARP for an address outside', `frame(arp('${world.web}'), 0x0806, to=EVERYBODY)`],
    ['ARP that takes the gateway’s address', `frame(arp('192.0.0.2', 2, source='192.0.0.1'), 0x0806, to=EVERYBODY)`],
    ['ARP from another address', `frame(arp('192.0.0.1', source='192.0.0.5'), 0x0806, to=EVERYBODY)`],
    ['a VLAN tag', `frame(syn('${world.web}'), tag=bytes.fromhex('8100000a'))`],
    ['a VLAN tag of priority alone', `frame(syn('${world.web}'), tag=bytes.fromhex('81000000'))`],
    ['two VLAN tags', `frame(syn('${world.web}'), tag=bytes.fromhex('88a8000a8100000b'))`],
    ['MPLS', `frame(bytes.fromhex('00010140') + syn('${world.web}'), 0x8847)`],
    ['PPPoE', `frame(bytes.fromhex('110900000000'), 0x8863, to=EVERYBODY)`],
    ['LLDP', `frame(bytes(64), 0x88cc, to=bytes.fromhex('0180c200000e'))`],
    ['an unknown kind of frame', `frame(bytes(64), 0x88b5)`],
    [
      'a DHCP discover',
      `frame(datagram_packet('255.255.255.255', 67, '0.0.0.0', bytes([1, 1, 6, 0]) + bytes(240), 68), to=EVERYBODY)`,
    ],
    ['a DHCP offer', `frame(datagram_packet('192.0.0.1', 68, data=bytes([2, 1, 6, 0]) + bytes(240), sport=67))`],
    [
      'a router advertisement',
      `frame(packet6('ff02::1', 58, bytes([134, 0, 0, 0, 64, 0, 7, 8]) + bytes(8)), 0x86dd, to=bytes.fromhex('333300000001'))`,
    ],
    [
      'a router solicitation',
      `frame(packet6('ff02::2', 58, bytes([133] + [0] * 7)), 0x86dd, to=bytes.fromhex('333300000002'))`,
    ],
    [
      'a neighbour solicitation',
      `frame(packet6('ff02::1', 58, bytes([135] + [0] * 23)), 0x86dd, to=bytes.fromhex('333300000001'))`,
    ],
    [
      'DHCPv6',
      `frame(packet6('ff02::1:2', 17, struct.pack('>HHHH', 546, 547, 12, 0) + bytes(4)), 0x86dd, to=bytes.fromhex('333300010002'))`,
    ],
    ['an IPv6 echo request', `frame(packet6('${world.web6}', 58, bytes([128] + [0] * 7), '2001:db8::5'), 0x86dd)`],
    [
      'a connection over IPv6',
      `frame(packet6('${world.web6}', 6, bytes.fromhex('1092005000000001000000005002200000000000'), '2001:db8::5'), 0x86dd)`,
    ],
  ] as const
).map(([name, code]) => [name, code, 'unheard', 'alone']);

const tlsNames: Attempt[] = [
  ['TLS for another name on the address of an allowed one', `tls('one.shop.org', 'two.shop.org', path='/forbidden')`],
  ['TLS without a name', `tls('one.shop.org', None, path='/forbidden')`],
  ['TLS for an allowed name, at its bare address', `tls('${world.web}', 'one.shop.org', path='/forbidden')`],
  ['TLS for an allowed name, at another’s address', `tls('${world.other}', 'one.shop.org', path='/forbidden')`],
  ['TLS for an allowed name, at another allowed one’s', `tls('both.shop.org', 'one.shop.org', path='/forbidden')`],
  ['TLS for an allowed name, at one beneath the wildcard', `tls('a.wild.org', 'one.shop.org', path='/forbidden')`],
  ['another name, byte by byte', `dribble('one.shop.org', 443, hello('two.shop.org'))`],
  [
    'another name, late in many small records',
    `dribble('one.shop.org', 443, records(message(hello('two.shop.org')), 7))`,
  ],
  [
    'two greetings in one record',
    `tcp('one.shop.org', 443, records(message(hello('one.shop.org')) + message(hello('two.shop.org'))))`,
  ],
  [
    'half a greeting, then something else',
    `tcp('one.shop.org', 443, hello('one.shop.org')[:40] + ask('two.shop.org', '/forbidden'))`,
    'unheard',
  ],
  ['an empty record in front', `tcp('one.shop.org', 443, b'\\x16\\x03\\x01\\x00\\x00' + hello('two.shop.org'))`],
  ['an alert in front', `tcp('one.shop.org', 443, b'\\x15\\x03\\x01\\x00\\x02\\x01\\x00' + hello('two.shop.org'))`],
  ['TLS for another name on the port of HTTP', `tls('one.shop.org', 'two.shop.org', 80)`],
  ['HTTP for another name on the port of TLS', `http('two.shop.org', '/forbidden', to='one.shop.org', port=443)`],
  ['what is neither TLS nor HTTP', `tcp('one.shop.org', 443, b'SSH-2.0-client\\r\\n')`],
  ['binary bytes', `tcp('one.shop.org', 80, bytes(range(256)))`],
  ['a tunnel’s handshake', `tcp('one.shop.org', 443, b'\\x01' + bytes(147))`],
];

const refusedHttp: Attempt[] = [
  ['a request for another name', `http('two.shop.org', '/forbidden', to='one.shop.org')`],
  ['a request for an address', `http('${world.other}', '/forbidden', to='one.shop.org')`],
  ['a request for a private address', `http('${world.metadata}', '/forbidden', to='one.shop.org')`],
  ['a request for the same with a user in front', `http('one.shop.org@two.shop.org', '/forbidden', to='one.shop.org')`],
  ['a request without a host', `http(None, '/forbidden', to='one.shop.org')`],
  ['a request of HTTP/1.0 without a host', `http('one.shop.org', raw=b'GET /forbidden HTTP/1.0\\r\\n\\r\\n')`],
  ['a request of HTTP/0.9', `http('one.shop.org', raw=b'GET /forbidden\\r\\n')`],
  [
    'an absolute URL of another name',
    `http('one.shop.org', raw=b'GET http://two.shop.org/forbidden HTTP/1.1\\r\\nHost: one.shop.org\\r\\n\\r\\n')`,
  ],
  [
    'two hosts',
    `http('one.shop.org', raw=b'GET /forbidden HTTP/1.1\\r\\nHost: one.shop.org\\r\\nHost: two.shop.org\\r\\n\\r\\n')`,
  ],
  [
    'two hosts in one',
    `http('one.shop.org', raw=b'GET /forbidden HTTP/1.1\\r\\nHost: one.shop.org, two.shop.org\\r\\n\\r\\n')`,
  ],
  [
    'a space after the name of the header',
    `http('one.shop.org', raw=b'GET /forbidden HTTP/1.1\\r\\nHost : two.shop.org\\r\\nHost: one.shop.org\\r\\n\\r\\n')`,
  ],
  [
    'a folded header',
    `http('one.shop.org', raw=b'GET /forbidden HTTP/1.1\\r\\nX: a\\r\\n Host: one.shop.org\\r\\nHost: two.shop.org\\r\\n\\r\\n')`,
  ],
  [
    'a line end of another kind',
    `http('one.shop.org', raw=b'GET /forbidden HTTP/1.1\\rHost: one.shop.org\\r\\nHost: two.shop.org\\r\\n\\r\\n')`,
  ],
  [
    'empty lines in front',
    `http('one.shop.org', raw=b'\\r\\n\\r\\nGET /forbidden HTTP/1.1\\r\\nHost: two.shop.org\\r\\n\\r\\n')`,
  ],
  ['a request byte by byte', `dribble('one.shop.org', 80, ask('two.shop.org', '/forbidden'))`],
  ['CONNECT', `http('one.shop.org', raw=b'CONNECT two.shop.org:443 HTTP/1.1\\r\\nHost: one.shop.org\\r\\n\\r\\n')`],
  ['HTTP/2 in clear', `http('one.shop.org', raw=b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n')`],
];

const ports: Attempt[] = [
  [
    'a port that is in no rule',
    `first("http('one.shop.org', port=8080)", "tcp('one.shop.org', 9000)", "tcp('one.shop.org', 22)")`,
  ],
  ['the ports of HTTP where another is named', `first("http('ssh.shop.org')", "tcp('ssh.shop.org', 443)")`],
  ['an allowed range on another port', `first("http('${world.other}')", "tcp('${world.other}', 9000)")`],
  [
    'the bare address of an allowed name',
    `first("http('one.shop.org', to='${world.web}')", "tcp('${world.web}', 22)")`,
  ],
  ['the name that a wildcard stands beneath', `http('wild.org')`],
  ['a name that ends like it', `first("http('evilwild.org')", "http('a.evilwild.org')")`],
  ['a name that begins like an allowed one', `first("http('one.shop.org.evil.org')", "http('one.shop.organic')")`],
  ['what is beneath an allowed name', `http('www.one.shop.org')`],
  ['a denied name beneath a wildcard', `first("http('bad.wild.org')", "http('BAD.wild.org.')")`],
  ['a denied name by the address of an allowed one', `http('bad.wild.org', to='a.wild.org')`],
  [
    'a name that looks like an allowed one',
    `first("http('one.sh\\u043ep.org')", "http('one\\u3002shop.evil.org')", "http('xn--one-shop.org')")`,
  ],
  ['an unknown top-level name', `first("http('shop')", "http('org')", "http('localhost.localdomain')")`],
];

const under = { allowlist: 'allowlist', internet: 'internet', denying: 'internet but for …' };

/** On these the server is connected before the client has spoken, since it may be who speaks first. */
const otherPorts: Attempt[] = [
  ['another port: a request for another name', `http('two.shop.org', '/forbidden', to='ssh.shop.org', port=8080)`],
  ['another port: byte by byte', `dribble('ssh.shop.org', 8080, ask('two.shop.org', '/forbidden'))`],
  ['another port: late', `late('ssh.shop.org', 8080, b'', ask('two.shop.org', '/forbidden'))`],
  [
    'another port: its first byte long before the rest',
    `late('ssh.shop.org', 8080, b'G', ask('two.shop.org', '/forbidden')[1:])`,
  ],
  [
    'another port: an empty line long before the rest',
    `late('ssh.shop.org', 8080, b'\\r\\n', ask('two.shop.org', '/forbidden'))`,
  ],
  ['another port: without a host', `http('ssh.shop.org', port=8080, raw=b'GET /forbidden HTTP/1.0\\r\\n\\r\\n')`],
  ['another port: HTTP/2 in clear', `http('ssh.shop.org', port=8080, raw=b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n')`],
  ['another port: TLS for another name', `tls('ssh.shop.org', 'two.shop.org', 8080)`],
  [
    'another port: TLS for another name, its first byte long before the rest',
    `late('ssh.shop.org', 8080, hello('two.shop.org')[:1], hello('two.shop.org')[1:])`,
  ],
];

export const fixedBatches = {
  withoutCard,
  allowlist: {
    under: under.allowlist,
    leaves: 'nothing',
    attempts: [...lookUps, ...spellings, ...protocols, ...tlsNames, ...refusedHttp, ...ports, ...frames],
  },
  traps: {
    under: under.allowlist,
    leaves: 'look-ups',
    attempts: traps.flatMap((name): Attempt[] => [
      [
        `an allowed name that means a forbidden address: ${name}`,
        `first("http('${name}')", "tls('${name}', '${name}')")`,
      ],
    ]),
  },
  requests: {
    under: under.allowlist,
    leaves: 'requests',
    attempts: [
      ...otherPorts,
      [
        'a second request for another name',
        `http_then(ask('one.shop.org', '/ok'), ask('two.shop.org', '/forbidden'), 'one.shop.org')`,
      ],
      [
        'two requests at once, the second for another',
        `http('one.shop.org', raw=ask('one.shop.org', '/ok') + ask('two.shop.org', '/forbidden'))`,
        'either',
      ],
      [
        'a request in another’s body: length and chunks',
        `http('one.shop.org', raw=b'POST /ok HTTP/1.1\\r\\nHost: one.shop.org\\r\\nContent-Length: 5\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n' + ask('two.shop.org', '/forbidden'))`,
        'either',
      ],
      [
        'a request in another’s body: chunks with odd spacing',
        `http('one.shop.org', raw=b'POST /ok HTTP/1.1\\r\\nHost: one.shop.org\\r\\nContent-Length: 4\\r\\nTransfer-Encoding : chunked\\r\\n\\r\\n0\\r\\n\\r\\n' + ask('two.shop.org', '/forbidden'))`,
        'either',
      ],
      [
        'a request in another’s body: a coding of no meaning',
        `http('one.shop.org', raw=b'POST /ok HTTP/1.1\\r\\nHost: one.shop.org\\r\\nContent-Length: 4\\r\\nTransfer-Encoding: xchunked\\r\\n\\r\\n0\\r\\n\\r\\n' + ask('two.shop.org', '/forbidden'))`,
        'either',
      ],
      [
        'a request in another’s body: two lengths',
        `http('one.shop.org', raw=b'POST /ok HTTP/1.1\\r\\nHost: one.shop.org\\r\\nContent-Length: 0\\r\\nContent-Length: 5\\r\\n\\r\\n' + ask('two.shop.org', '/forbidden'))`,
        'either',
      ],
      [
        'a request after a chunk of a false size',
        `http('one.shop.org', raw=b'POST /ok HTTP/1.1\\r\\nHost: one.shop.org\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n1;x=\\r\\n\\r\\nAB\\r\\n0\\r\\n\\r\\n' + ask('two.shop.org', '/forbidden'))`,
        'either',
      ],
      [
        'a change to HTTP/2 in clear',
        `http_then(b'GET /ok HTTP/1.1\\r\\nHost: one.shop.org\\r\\nConnection: Upgrade, HTTP2-Settings\\r\\nUpgrade: h2c\\r\\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\\r\\n\\r\\n', b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n', 'one.shop.org')`,
      ],
      [
        'two greetings of TLS, the second for another',
        `tcp('one.shop.org', 443, hello('one.shop.org') + hello('two.shop.org'))`,
        'either',
      ],
      ['metadata by a redirect', `redirected('one.shop.org', 'http://${world.metadata}/forbidden')`, 'either'],
      ['another name by a redirect', `redirected('one.shop.org', 'http://evil.org/forbidden')`, 'either'],
    ],
  },
  internet: {
    under: under.internet,
    leaves: 'look-ups',
    attempts: [
      ...spellings,
      ...protocols,
      ['a resolver, by UDP', `udp('${world.resolver}', 5353)`],
      ['any record but an address', `dns('${LONG}.evil.org', 16)`],
      ['a tunnel of long labels', `dns('${LONG}.evil.org')`, 'here'],
      ...traps.map((name): Attempt => [`a name that means a forbidden address: ${name}`, `http('${name}')`]),
    ],
  },
  denying: {
    under: under.denying,
    leaves: 'connections',
    attempts: [
      ['a denied name', `first("http('evil.org')", "http('www.evil.org')", "http('EVIL.org.')")`],
      ['an address in a denied range', `first("http('${world.other}')", "tcp('${world.other}', 9000)")`],
      ['a name that means an address in a denied range', `http('friend.org')`],
      ['TLS for a denied name on the address of another', `tls('one.shop.org', 'www.evil.org')`],
      ['a request for a denied name on the address of another', `http('www.evil.org', to='one.shop.org')`],
      ['a request for a denied name at a bare address', `http('www.evil.org', to='${world.web}')`],
    ],
  },
  closed: {
    under: 'none, with a card',
    leaves: 'nothing',
    attempts: [
      ['a look-up', `dns('one.shop.org')`],
      ['an address', `first("http('${world.web}')", "tcp('${world.web}', 9000)")`],
      ['an echo request', `ping('${world.web}')`],
    ],
  },
} satisfies Record<string, Batch>;

/** Whether a policy of one allowed name is still what holds. */
export const stillHeld = (when: string): Batch => ({
  under: `allowlist, ${when}`,
  leaves: 'requests',
  attempts: [
    ['the allowed name', `http('one.shop.org', '/ok')`, 'reached'],
    ['another name', `http('two.shop.org', '/forbidden')`],
    ['another name, by the address of the allowed one', `http('two.shop.org', '/forbidden', to='one.shop.org')`],
    ['an address', `http('${world.web}', '/forbidden')`],
    ['metadata', `http('${world.metadata}', '/forbidden')`],
  ],
});

export const allowedWays: Batch = {
  under: under.allowlist,
  leaves: 'requests',
  attempts: [
    ['HTTP', `http('one.shop.org', '/ok')`, 'reached'],
    ['HTTP with the port named', `http('one.shop.org:80', '/ok', to='one.shop.org')`, 'reached'],
    ['a name in capitals, with a final dot', `http('ONE.Shop.org.', '/ok')`, 'reached'],
    ['TLS, verified', `tls('one.shop.org', 'one.shop.org', path='/ok')`, 'reached'],
    ['a greeting of TLS, byte by byte', `dribble('one.shop.org', 443, hello('one.shop.org'))`, 'reached'],
    [
      'a greeting of TLS in small records',
      `dribble('one.shop.org', 443, records(message(hello('one.shop.org')), 100))`,
      'reached',
    ],
    [
      'two requests on one connection',
      `http_then(ask('one.shop.org', '/ok'), ask('one.shop.org', '/ok'), 'one.shop.org')`,
      'reached',
    ],
    ['an alias', `http('alias.shop.org', '/ok')`, 'reached'],
    ['a name with an IPv6 address alone', `http('six.shop.org', '/ok')`, 'reached'],
    ['a name with both', `tls('both.shop.org', 'both.shop.org', path='/ok')`, 'reached'],
    ['a name with a private address too', `http('mixed.shop.org', '/ok')`, 'reached'],
    ['what is beneath a wildcard', `first("http('a.wild.org', '/ok')")`, 'reached'],
    ['what is deeper beneath it', `http('b.a.wild.org', '/ok')`, 'reached'],
    ['a server that speaks first, on the port named', `tcp('ssh.shop.org', 22)`, 'reached'],
    ['a range on the port named', `http('${world.other}', '/ok', port=8080)`, 'reached'],
    ['HTTP on the other port named', `http('ssh.shop.org', '/ok', port=8080)`, 'reached'],
    ['ARP for the gateway', `frame(arp('192.0.0.1'), 0x0806, to=EVERYBODY)`, 'reached', 'alone'],
  ],
};
