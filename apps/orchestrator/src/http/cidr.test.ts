import { rawExchange, upgradeHead } from '@fuse/testing';
import { describe, expect, it } from 'vitest';
import { startTestOrchestrator } from '../test-orchestrator.ts';
import { AllowList, parseCidr, type Subnet } from './cidr.ts';

const listOf = (...texts: string[]) => new AllowList(texts.map((text) => parseCidr(text) as Subnet));
const allows = (list: AllowList, address: string | undefined): boolean => {
  try {
    list.check(address);
    return true;
  } catch {
    return false;
  }
};

describe('an allow list', () => {
  it('takes addresses and networks of both families, and nothing else', () => {
    for (const text of ['10.0.0.0/8', '0.0.0.0/0', '192.0.2.7', '2001:db8::/32', '::1', '::/0', '::ffff:10.0.0.0/104'])
      expect([text, parseCidr(text)]).toEqual([text, expect.anything()]);
    for (const text of [
      '',
      'x',
      '10.0.0.0/33',
      '10.0.0/8',
      '::/129',
      '10.0.0.0/',
      '10.0.0.0/8/8',
      '::ffff:10.0.0.0/8',
      'fe80::1%eth0',
      '10.0.0.0/-1',
    ])
      expect([text, parseCidr(text)]).toEqual([text, undefined]);
  });

  it.each([
    [
      '10.0.0.0/8',
      ['10.0.0.0', '10.255.255.255', '::ffff:10.1.2.3'],
      ['9.255.255.255', '11.0.0.0', '::ffff:11.0.0.0', '::1'],
    ],
    ['10.1.2.3/8', ['10.0.0.0'], ['11.0.0.0']],
    ['192.0.2.7', ['192.0.2.7'], ['192.0.2.6', '192.0.2.8']],
    ['255.255.255.0/24', ['255.255.255.0', '255.255.255.255'], ['255.255.254.255', '0.0.0.0']],
    ['0.0.0.0/0', ['0.0.0.0', '255.255.255.255', '::ffff:1.2.3.4'], ['::1', '2001:db8::1']],
    ['2001:db8::/32', ['2001:db8::', '2001:db8:ffff:ffff:ffff:ffff:ffff:ffff'], ['2001:db9::', '10.0.0.1']],
    ['ffff:ffff::/32', ['ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'], ['ffff:fffe:ffff:ffff:ffff:ffff:ffff:ffff']],
    ['fe80::/10', ['fe80::1%eth0'], ['fec0::1']],
    ['::/0', ['::1', '2001:db8::1'], ['10.0.0.1']],
    ['::ffff:10.0.0.0/104', ['10.9.9.9', '::ffff:10.9.9.9'], ['11.0.0.0']],
  ])('%s', (text, inside, outside) => {
    const list = listOf(text);
    expect(inside.filter((address) => !allows(list, address))).toEqual([]);
    expect(outside.filter((address) => allows(list, address))).toEqual([]);
  });

  it('says so when it cannot tell', () => {
    expect(() => listOf('0.0.0.0/0').check(undefined)).toThrow('could not parse remote address');
    expect(() => listOf('0.0.0.0/0').check('not an address')).toThrow('could not parse remote address');
  });

  it('comes before credentials and routes, for upgrades too, and not before the probes; what headers say does not count', async () => {
    await using scene = await startTestOrchestrator('postgres');
    const { url } = await scene.another({ allowedCidrs: [parseCidr('192.0.2.0/24') as Subnet] });
    const forwarded = { 'x-forwarded-for': '192.0.2.1', forwarded: 'for=192.0.2.1' };
    for (const path of ['/v1/environments', '/nowhere', '/docs', '/login']) {
      const response = await fetch(`${url}${path}`, { headers: forwarded });
      expect([path, response.status, await response.json()]).toMatchObject([
        path,
        403,
        { error: { code: 'forbidden', message: 'source address not in allowlist' } },
      ]);
      expect(response.headers.get('x-request-id')).toMatch(/^req_/);
    }
    for (const path of ['/health', '/ready', '/metrics', '/v1/version'])
      expect((await fetch(`${url}${path}`)).status).not.toBe(403);
    const { ended } = rawExchange(url, upgradeHead('/v1/environments/x/attach?tty=1', 'fuse-attach/1', forwarded));
    expect(String((await ended).bytes)).toMatch(/^HTTP\/1\.1 403 .*"forbidden"/s);
    const { url: own } = await scene.another({ allowedCidrs: [parseCidr('127.0.0.0/8') as Subnet] });
    expect((await fetch(`${own}/v1/environments`)).status).toBe(401);
  });
});
