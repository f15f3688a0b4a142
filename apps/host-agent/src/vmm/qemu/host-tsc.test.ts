import { expect, it } from 'vitest';
import { hostTscKhz, tscKhzFrom } from './host-tsc.ts';

it('reads the rate of the time stamp counter from what the kernel derives from it', () => {
  expect(tscKhzFrom('processor\t: 0\nbogomips\t: 5192.24\n')).toBe(2_596_120);
  expect(tscKhzFrom('processor\t: 0\nBogoMIPS\t: 4800.00\n')).toBe(2_400_000);
  expect(tscKhzFrom('processor\t: 0\n')).toBeUndefined();
  expect(hostTscKhz()).toBeGreaterThan(100_000);
});
