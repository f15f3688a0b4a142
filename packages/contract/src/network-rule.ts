/** One rule, from what a client gives to what is kept, and as text. Pure. */
import type { z } from 'zod';
import { ALL_PORTS, DEFAULT_RULE_PORTS, type GivenRule, type NetworkRule, type PortRange } from './network.ts';
import { type AddressRange, contains, formatRange, networkOf, parseRange } from './network-address.ts';
import { isMetadata } from './network-metadata.ts';
import { canonicalName, endsInNumber, type Problem } from './network-name.ts';
import { coversPorts, mergedPorts, parsePorts, portsText, problemOfRange } from './network-ports.ts';

export type RuleKind = 'allow' | 'deny';
type Given = z.infer<typeof GivenRule>;
type CidrRule = Extract<NetworkRule, { cidr: string }>;
type Target = { host: string } | { cidr: string };

const PORTS_HINT = 'Write ports as 443, 22,443, 8000-8100 or *, each 1 to 65535.';
const METADATA = {
  problem: 'is where clouds serve credentials: no policy and no operator opens metadata addresses',
  hint: 'Take the rule out. Give the environment what it needs as "secrets" or "env".',
};
const CIDR_HINT = 'Write it as 203.0.113.0/24, 203.0.113.5 or 2001:db8::/32.';

/** `field` of a problem: beneath the rule, where it is an object. */
export function canonicalRule(given: Given, kind: RuleKind): NetworkRule | (Problem & { field?: string }) {
  if (typeof given === 'string') return fromText(given, kind);
  const target = takenAs(kind, 'host' in given ? targetOf(given.host) : rangeOf(given.cidr));
  if ('problem' in target) return { ...target, field: 'host' in given ? 'host' : 'cidr' };
  const ports = given.ports?.map((port) => (typeof port === 'number' ? { from: port, to: port } : port));
  const problem = ports?.map(problemOfRange).find((found) => found !== undefined);
  if (problem !== undefined) return { problem, hint: PORTS_HINT, field: 'ports' };
  return { ...target, ports: portsOf(ports, kind) };
}

/** TARGET or TARGET:PORTS; an IPv6 target in brackets. */
function fromText(text: string, kind: RuleKind): NetworkRule | Problem {
  const isBracketed = text.startsWith('[');
  if (text.includes('://'))
    return {
      problem: 'is a URL',
      hint: 'Write its host and, where it is not 80 or 443, its port: pypi.org, pypi.org:8443.',
    };
  if (!isBracketed && text.split(':').length > 2)
    return {
      problem: 'has several colons: where an address ends and its port begins cannot be told',
      hint: 'Write IPv6 in brackets: [2001:db8::/32], or [2001:db8::/32]:443.',
    };
  const [, target, portText] = (isBracketed ? /^\[([^\]]*)\](?::(.*))?$/s : /^([^:]*)(?::(.*))?$/s).exec(text) ?? [];
  if (target === undefined) return { problem: 'is no rule', hint: 'Write [2001:db8::/32], or [2001:db8::/32]:443.' };
  const found = takenAs(kind, isBracketed ? rangeOf(target) : targetOf(target));
  if ('problem' in found) return found;
  const ports = portText === undefined ? undefined : parsePorts(portText);
  if (typeof ports === 'string') return { problem: ports, hint: PORTS_HINT };
  return { ...found, ports: portsOf(ports, kind) };
}

const portsOf = (ports: readonly PortRange[] | undefined, kind: RuleKind): PortRange[] =>
  mergedPorts(ports ?? (kind === 'allow' ? DEFAULT_RULE_PORTS : ALL_PORTS));

/** What could never match is no rule of `allow`. */
function takenAs(kind: RuleKind, target: Target | Problem): Target | Problem {
  const range = kind === 'allow' && 'cidr' in target ? parseRange(target.cidr) : undefined;
  return range !== undefined && isMetadata(range) ? METADATA : target;
}

function targetOf(text: string): Target | Problem {
  const [address = '', ...path] = text.split('/');
  if (text.includes(':') || parseRange(address) !== undefined) return rangeOf(text);
  const name = canonicalName(address);
  if (typeof name !== 'string') return name;
  return path.length === 0
    ? { host: name }
    : { problem: 'has a path', hint: `Connections are allowed by host: write ${name}.` };
}

function rangeOf(text: string): { cidr: string } | Problem {
  const range = parseRange(text);
  if (range === undefined) return noRange(text);
  const network = networkOf(range);
  if (network.first !== range.first) {
    const one = formatRange({ ...range, prefix: range.bits });
    return {
      problem: 'has bits set beyond its prefix',
      hint: `Write ${formatRange(network)}, or ${one} for that address alone.`,
    };
  }
  return { cidr: formatRange(network) };
}

function noRange(text: string): Problem {
  const [address = ''] = text.split('/');
  const odd =
    endsInNumber(address) && !address.includes(':') && parseRange(address) === undefined ? canonicalName(address) : '';
  return typeof odd === 'string' ? { problem: 'is no address range', hint: CIDR_HINT } : odd;
}

/** As it may be given: `*.npmjs.org:443`, `[2001:db8::/32]:443`. */
export function ruleText(rule: NetworkRule): string {
  const target = 'host' in rule ? rule.host : rule.cidr.includes(':') ? `[${rule.cidr}]` : rule.cidr;
  return `${target}:${portsText(rule.ports)}`;
}

/** Whether everything that `inner` names is named by `outer` too, ports aside. */
export function coversTarget(outer: NetworkRule, inner: NetworkRule): boolean {
  if ('host' in outer) return 'host' in inner && coversName(outer.host, inner.host);
  return 'cidr' in inner && contains(canonicalRange(outer), canonicalRange(inner));
}

function coversName(outer: string, inner: string): boolean {
  if (outer === inner) return true;
  return (
    outer.startsWith('*.') &&
    (inner.startsWith('*.') ? inner.slice(1) : inner).endsWith(outer.slice(1)) &&
    inner !== outer.slice(2)
  );
}

/** Every rule is compared with every other one. */
const ranges = new WeakMap<CidrRule, AddressRange>();

function canonicalRange(rule: CidrRule): AddressRange {
  const range = ranges.get(rule) ?? parseRange(rule.cidr);
  if (range === undefined) throw new Error(`not a canonical range: ${rule.cidr}`);
  ranges.set(rule, range);
  return range;
}

/** By one of them, or by several that each have some of its ports. */
export const isCovered = (rule: NetworkRule, by: readonly NetworkRule[]): boolean =>
  coversPorts(
    by.filter((one) => coversTarget(one, rule)).flatMap(({ ports }) => ports),
    rule.ports,
  );
