import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { METADATA_CIDRS } from './network-metadata.ts';

it('metadata ranges are those that the gateway refuses whatever it is told', () => {
  const source = readFileSync(new URL('../../../gateway/internal/policy/forbidden.go', import.meta.url), 'utf8');
  const [, list = ''] = /^var metadata = [^\n]*\n(.*?)^}/ms.exec(source) ?? [];
  expect([...list.matchAll(/^\t\{"([^"]+)"/gm)].map(([, prefix]) => prefix)).toEqual(METADATA_CIDRS);
});
