/** Ports of rules. Pure. */
import { ALL_PORTS, type PortRange } from './network.ts';

/** In order, without overlap, neighbours joined. */
export function mergedPorts(ports: readonly PortRange[]): PortRange[] {
  const merged: PortRange[] = [];
  for (const { from, to } of [...ports].sort((a, b) => a.from - b.from)) {
    const last = merged.at(-1);
    if (last !== undefined && from <= last.to + 1) last.to = Math.max(last.to, to);
    else merged.push({ from, to });
  }
  return merged;
}

/** `443`, `22,443`, `8000-8100`, `*`; a string says what is wrong. */
export function parsePorts(text: string): PortRange[] | string {
  if (text === '*') return [...ALL_PORTS];
  const ports: PortRange[] = [];
  for (const part of text.split(',')) {
    const [, first, last] = /^([1-9]\d{0,4})(?:-([1-9]\d{0,4}))?$/.exec(part) ?? [];
    if (first === undefined) return `"${part.slice(0, 32)}" is no port`;
    const range = { from: Number(first), to: Number(last ?? first) };
    const problem = problemOfRange(range);
    if (problem !== undefined) return problem;
    ports.push(range);
  }
  return ports;
}

export function problemOfRange({ from, to }: PortRange): string | undefined {
  if (to > 65_535) return `port ${to} is over 65535`;
  return from > to ? `ports ${from}-${to} end before they begin` : undefined;
}

/** Whether every port of `ports` is one of `all`. */
export const coversPorts = (all: readonly PortRange[], ports: readonly PortRange[]): boolean => {
  const merged = mergedPorts(all);
  return ports.every(({ from, to }) => merged.some((range) => range.from <= from && to <= range.to));
};

const isAll = (ports: readonly PortRange[]): boolean => coversPorts(ports, ALL_PORTS);

/** As `parsePorts` reads it. */
export const portsText = (ports: readonly PortRange[]): string =>
  isAll(ports) ? '*' : ports.map(({ from, to }) => (from === to ? String(from) : `${from}-${to}`)).join(',');
