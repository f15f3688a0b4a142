import { expect, it } from 'vitest';
import { GpuDevice, GpuText } from './gpu.ts';

it('takes what hosts tell, and nothing that cannot be stored', () => {
  expect(GpuText.parse('NVIDIA A100 80GB, ™ 😀')).toBe('NVIDIA A100 80GB, ™ 😀');
  for (const text of ['a\0b', '\ud800', 'x\udc00y', 'x'.repeat(257)]) {
    expect(GpuText.safeParse(text).success).toBe(false);
    expect(GpuDevice.safeParse({ uuid: text }).success).toBe(false);
  }
});
