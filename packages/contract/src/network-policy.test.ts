import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ALL_PORTS, GivenNetworkPolicy, type NetworkPolicy, type NetworkRule, type PortRange } from './network.ts';
import { contains, formatRange, networkOf, parseRange } from './network-address.ts';
import { canonicalPolicy, isSamePolicy, policyWithin } from './network-policy.ts';
import { coversPorts, mergedPorts } from './network-ports.ts';
import { coversTarget, ruleText } from './network-rule.ts';

const label = fc.constantFrom('a', 'b', 'cdn', 'x-1', '_srv');
const name = fc.array(label, { minLength: 1, maxLength: 3 }).map((labels) => [...labels, 'example', 'com'].join('.'));
const host = fc.tuple(fc.boolean(), name).map(([wild, text]) => (wild ? `*.${text}` : text));
const v4 = fc
  .tuple(fc.constantFrom(0n, 0xcb00_7100n, 0xffff_ffffn, 0x0a00_0001n), fc.integer({ min: 0, max: 32 }))
  .map(([first, prefix]) => formatRange(networkOf({ bits: 32, first, prefix })));
const v6 = fc
  .tuple(fc.bigInt({ min: 0n, max: (1n << 128n) - 1n }), fc.integer({ min: 0, max: 128 }))
  .map(([first, prefix]) => formatRange(networkOf({ bits: 128, first, prefix })));
const ports = fc
  .array(
    fc.tuple(fc.integer({ min: 1, max: 65_535 }), fc.integer({ min: 0, max: 300 })).map(([from, more]) => ({
      from,
      to: Math.min(65_535, from + more),
    })),
    { minLength: 1, maxLength: 6 },
  )
  .map((ranges) => ranges as PortRange[]);
const given = fc.oneof(fc.record({ host, ports }), fc.record({ cidr: fc.oneof(v4, v6), ports }));
const policies = fc
  .record({
    egress: fc.constantFrom('none' as const, 'allowlist' as const, 'internet' as const),
    allow: fc.array(given, { maxLength: 5 }),
    deny: fc.array(given, { maxLength: 3 }),
  })
  .map(({ egress, allow, deny }) => canonicalPolicy({ egress, allow: egress === 'allowlist' ? allow : [], deny }));

describe('a canonical policy', () => {
  it('is itself when it is given again, as objects or as text, in whatever order a database keeps its fields', () => {
    fc.assert(
      fc.property(policies, (policy) => {
        const parsed = GivenNetworkPolicy.parse(JSON.parse(JSON.stringify(policy)));
        expect(canonicalPolicy(parsed)).toEqual(policy);
        const asText = { ...policy, allow: policy.allow.map(ruleText), deny: policy.deny.map(ruleText) };
        expect(canonicalPolicy(asText)).toEqual(policy);
        const reversed = Object.fromEntries(Object.entries(policy).reverse()) as NetworkPolicy; // the same fields
        expect(isSamePolicy(policy, reversed)).toBe(true);
      }),
    );
  });

  it('has ports in order, apart, and none more or less than were given', () => {
    fc.assert(
      fc.property(ports, (ranges) => {
        const merged = mergedPorts(ranges);
        for (const [at, { from }] of merged.entries())
          if (at > 0) expect(from).toBeGreaterThan((merged[at - 1]?.to ?? 0) + 1);
        expect(coversPorts(merged, ranges)).toBe(true);
        const has = (port: number) => ranges.some(({ from, to }) => from <= port && port <= to);
        for (const { from, to } of merged) for (const port of [from, to]) expect(has(port)).toBe(true);
        for (const { from, to } of merged) for (const port of [from - 1, to + 1]) expect(has(port)).toBe(false);
      }),
    );
  });

  it('survives any text as a rule: it is taken or refused with a hint', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string({ minLength: 1 }), fc.stringMatching(/^[[\]:.*/\d\w-]{1,30}$/)), (text) => {
        try {
          canonicalPolicy({ egress: 'allowlist', allow: [text] });
        } catch (error) {
          expect(error).toMatchObject({ code: 'invalid_argument', hint: expect.any(String) });
        }
      }),
      { numRuns: 500 },
    );
  });
});

it('ranges contain what lies in them, to the last address', () => {
  const rangeOf = (text: string) => parseRange(text) ?? { bits: 32 as const, first: -1n, prefix: 0 };
  expect(contains(rangeOf('240.0.0.0/4'), rangeOf('255.255.255.255'))).toBe(true);
  expect(contains(rangeOf('255.255.255.255/32'), rangeOf('255.255.255.254'))).toBe(false);
  expect(contains(rangeOf('0.0.0.0/0'), rangeOf('2001:db8::'))).toBe(false);
  expect(contains(rangeOf('::/0'), rangeOf('ffff::/16'))).toBe(true);
});

describe('a policy within a ceiling', () => {
  const list = (...allow: string[]) => canonicalPolicy({ egress: 'allowlist', allow });
  it.each([
    [list('pypi.org'), list('pypi.org:*'), undefined],
    [list('a.pypi.org', '*.a.pypi.org'), list('*.pypi.org'), undefined],
    [list('pypi.org'), list('*.pypi.org'), 'allow.0'],
    [list('*.pypi.org'), list('a.pypi.org'), 'allow.0'],
    [list('evilpypi.org'), list('*.pypi.org'), 'allow.0'],
    [list('pypi.org:80,443'), list('pypi.org:80', 'pypi.org:443'), undefined],
    [list('pypi.org', 'github.com:22'), list('pypi.org', 'github.com'), 'allow.1'],
    [list('203.0.113.0/25'), list('203.0.113.0/24'), undefined],
    [list('203.0.113.0/24'), list('203.0.113.0/25'), 'allow.0'],
    [list('203.0.113.5'), list('pypi.org'), 'allow.0'],
    [list(), list(), undefined],
    [canonicalPolicy({ egress: 'internet' }), list('pypi.org'), 'egress'],
    [list(), canonicalPolicy({ egress: 'none' }), 'egress'],
    [canonicalPolicy({ egress: 'none' }), canonicalPolicy({ egress: 'none' }), undefined],
    [
      canonicalPolicy({ egress: 'internet' }),
      canonicalPolicy({ egress: 'internet', deny: ['evil.example.com'] }),
      undefined,
    ],
    [list('*.example.com'), canonicalPolicy({ egress: 'internet', deny: ['evil.example.com'] }), undefined],
    [list('evil.example.com:443'), canonicalPolicy({ egress: 'internet', deny: ['*.example.com'] }), 'allow.0'],
  ] as const)('case %#', (policy, max, field) => {
    expect(policyWithin(policy, max)?.field).toBe(field);
  });

  it('allows nothing that the ceiling does not, and names a rule that is over it otherwise', () => {
    const samples: NetworkRule[] = ['a.example.com', 'b.a.example.com', 'cdn.cdn.example.com', '_srv.example.com']
      .map((text): NetworkRule => ({ host: text, ports: [] }))
      .concat(['203.0.113.5/32', '255.255.255.255/32', '10.0.0.1/32'].map((cidr) => ({ cidr, ports: [] })));
    const allows = ({ egress, allow }: NetworkPolicy, sample: NetworkRule, port: number) =>
      egress === 'internet' ||
      allow.some((rule) => coversTarget(rule, sample) && coversPorts(rule.ports, [{ from: port, to: port }]));
    fc.assert(
      fc.property(policies, policies, fc.integer({ min: 1, max: 65_535 }), (policy, max, anyPort) => {
        expect(policyWithin(policy, policy.deny.length === 0 ? policy : { ...policy, deny: [] })).toBeUndefined();
        const excess = policyWithin(policy, max);
        if (excess !== undefined) {
          const at = /^allow\.(\d+)$/.exec(excess.field)?.[1];
          expect(excess.what).toBe(
            at === undefined ? policy.egress : ruleText(policy.allow[Number(at)] ?? { host: '', ports: [] }),
          );
          return;
        }
        const edges = policy.allow.flatMap((rule) => rule.ports.flatMap(({ from, to }) => [from, to]));
        for (const sample of samples)
          for (const port of [anyPort, ...edges])
            if (allows(policy, sample, port)) expect(allows(max, sample, port)).toBe(true);
      }),
      { numRuns: 300 },
    );
    expect(coversPorts(ALL_PORTS, [{ from: 1, to: 65_535 }])).toBe(true);
  });
});
