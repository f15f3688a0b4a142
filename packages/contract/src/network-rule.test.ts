import { describe, expect, it } from 'vitest';
import { AppError } from './errors.ts';
import { GivenNetworkPolicy } from './network.ts';
import { canonicalPolicy } from './network-policy.ts';
import { ruleText } from './network-rule.ts';

const policyOf = (allow: unknown[], deny: unknown[] = []) =>
  canonicalPolicy(GivenNetworkPolicy.parse({ egress: 'allowlist', allow, deny }));
const refusalOf = (rule: unknown): AppError => {
  try {
    policyOf(['pypi.org', rule]);
  } catch (error) {
    if (error instanceof AppError) return error;
    throw error;
  }
  throw new Error(`taken: ${JSON.stringify(rule)}`);
};

describe('rules that are taken', () => {
  it.each([
    ['pypi.org', 'pypi.org:80,443'],
    ['PyPI.org.', 'pypi.org:80,443'],
    ['*.npmjs.org:443', '*.npmjs.org:443'],
    ['github.com:443,22', 'github.com:22,443'],
    ['a.example.com:1-100,50-200,201', 'a.example.com:1-201'],
    ['host.example.com:*', 'host.example.com:*'],
    ['host.example.com:1-65535', 'host.example.com:*'],
    ['my_bucket.s3.amazonaws.com', 'my_bucket.s3.amazonaws.com:80,443'],
    ['bücher.example', 'xn--bcher-kva.example:80,443'],
    ['*.BÜCHER。example', '*.xn--bcher-kva.example:80,443'],
    ['203.0.113.0/24:8000-8100', '203.0.113.0/24:8000-8100'],
    ['203.0.113.5', '203.0.113.5/32:80,443'],
    ['255.255.255.255:9', '255.255.255.255/32:9'],
    ['255.255.255.254/31', '255.255.255.254/31:80,443'],
    ['240.0.0.0/4', '240.0.0.0/4:80,443'],
    ['0.0.0.0/0', '0.0.0.0/0:80,443'],
    ['169.254.0.0/16', '169.254.0.0/16:80,443'],
    ['10.0.0.1', '10.0.0.1/32:80,443'],
    ['[2001:DB8:0:0:0:0:0:0/32]:443', '[2001:db8::/32]:443'],
    ['[::]', '[::/128]:80,443'],
    ['[1:0:0:2:0:0:0:3]', '[1:0:0:2::3/128]:80,443'],
    ['[1:0:2:3:4:5:6:7]', '[1:0:2:3:4:5:6:7/128]:80,443'],
    ['[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]', '[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128]:80,443'],
    ['[::ffff:203.0.113.5]:22', '203.0.113.5/32:22'],
    ['[::ffff:cb00:7100/120]', '203.0.113.0/24:80,443'],
    ['[64:ff9b::192.0.2.33]', '[64:ff9b::c000:221/128]:80,443'],
    [{ host: 'Example.com', ports: [443, { from: 8_000, to: 8_100 }] }, 'example.com:443,8000-8100'],
    [{ host: '203.0.113.5' }, '203.0.113.5/32:80,443'],
    [{ cidr: '2001:db8::/32', ports: null }, '[2001:db8::/32]:80,443'],
  ])('%j is %s', (given, text) => {
    expect(policyOf([given]).allow.map(ruleText)).toEqual([text]);
  });

  it('deny names every port unless it says which, and what is there twice is there once', () => {
    const { allow, deny } = policyOf(['a.example.com', 'A.example.com:443,80'], ['b.example.com', 'b.example.com:443']);
    expect(allow.map(ruleText)).toEqual(['a.example.com:80,443']);
    expect(deny.map(ruleText)).toEqual(['b.example.com:*', 'b.example.com:443']);
  });

  it('deny may name what is never reachable', () => {
    expect(policyOf([], ['169.254.169.254']).deny.map(ruleText)).toEqual(['169.254.169.254/32:*']);
  });
});

describe('rules that are refused', () => {
  it.each([
    ['localhost', /single label/, /in full/],
    ['*', /every host/, /"internet"/],
    ['*.com', /top-level/, /\*\.example\.com/],
    ['*.*.example.com', /elsewhere/, /one label or more/],
    ['a*.example.com', /elsewhere/, /one label or more/],
    ['.example.com', /no host name/, /Labels/],
    ['a..example.com', /no host name/, /Labels/],
    ['-a.example.com', /no host name/, /Labels/],
    [`${'a'.repeat(64)}.example.com`, /no host name/, /63/],
    [`${'a.'.repeat(127)}com`, /no host name/, /253/],
    ['https://pypi.org/simple', /is a URL/, /host/],
    ['pypi.org/simple', /has a path/, /write pypi\.org/],
    ['user@pypi.org', /no host name/, /Labels/],
    ['py pi.org', /no host name/, /name such as/],
    ['2130706433', /no canonical/, /127\.0\.0\.1/],
    ['0x7f.0.0.1', /no canonical/, /127\.0\.0\.1/],
    ['0177.0.0.1', /no canonical/, /127\.0\.0\.1/],
    ['127.1', /no canonical/, /127\.0\.0\.1/],
    ['127.0.0.1.', /no canonical/, /127\.0\.0\.1/],
    ['1.2.3.256', /no canonical/, /leading zeros/],
    ['１２７.0.0.1', /no canonical/, /127\.0\.0\.1/],
    ['10.1/8', /no canonical/, /10\.0\.0\.1/],
    ['example.0x7f', /no canonical/, /leading zeros/],
    ['203.0.113.5/24', /beyond its prefix/, /203\.0\.113\.0\/24, or 203\.0\.113\.5\/32/],
    ['255.255.255.255/31', /beyond its prefix/, /255\.255\.255\.254\/31/],
    ['[2001:db8::1/32]', /beyond its prefix/, /2001:db8::\/32/],
    ['203.0.113.0/33', /no address range/, /203\.0\.113\.0\/24/],
    ['203.0.113.0/024', /no address range/, /203\.0\.113\.0\/24/],
    ['2001:db8::/32', /several colons/, /\[2001:db8::\/32\]/],
    ['[2001:db8::/32', /no rule/, /\[2001:db8::\/32\]/],
    ['[fe80::1%eth0]', /no address range/, /203\.0\.113/],
    ['[1::2::3]', /no address range/, /203\.0\.113/],
    ['[pypi.org]', /no address range/, /203\.0\.113/],
    ['169.254.169.254', /metadata/, /secrets/],
    ['169.254.169.0/24:*', /metadata/, /secrets/],
    ['[::ffff:169.254.169.254]:80', /metadata/, /secrets/],
    ['[fd00:ec2::254]', /metadata/, /secrets/],
    ['pypi.org:0', /no port/, /1 to 65535/],
    ['pypi.org:65536', /over 65535/, /1 to 65535/],
    ['pypi.org:90-80', /before they begin/, /1 to 65535/],
    ['pypi.org:', /no port/, /1 to 65535/],
    ['pypi.org:080', /no port/, /1 to 65535/],
    ['pypi.org:*,80', /no port/, /1 to 65535/],
  ])('%j', (rule, problem, hint) => {
    const { code, message, details, hint: told } = refusalOf(rule);
    expect({ code, message, details, told }).toMatchObject({
      code: 'invalid_argument',
      message: expect.stringMatching(problem),
      details: { field: 'network.allow.1' },
      told: expect.stringMatching(hint),
    });
  });

  it('say which part of an object is wrong', () => {
    expect(refusalOf({ host: 'x' }).details).toEqual({ field: 'network.allow.1.host' });
    expect(refusalOf({ cidr: 'pypi.org' }).details).toEqual({ field: 'network.allow.1.cidr' });
    expect(refusalOf({ host: '169.254.169.254' }).details).toEqual({ field: 'network.allow.1.host' });
    expect(refusalOf({ cidr: '168.63.129.16/32' }).details).toEqual({ field: 'network.allow.1.cidr' });
    expect(refusalOf({ host: 'a.example.com', ports: [{ from: 9, to: 8 }] }).details).toEqual({
      field: 'network.allow.1.ports',
    });
  });

  it('allow goes with an allow-list alone', () => {
    for (const egress of ['none', 'internet'] as const)
      expect(() => canonicalPolicy({ egress, allow: ['pypi.org'] })).toThrow(
        /network\.allow: goes with egress "allowlist"/,
      );
    expect(canonicalPolicy({ egress: 'internet', allow: [], deny: ['*.example.com'] }).deny).toHaveLength(1);
  });
});
