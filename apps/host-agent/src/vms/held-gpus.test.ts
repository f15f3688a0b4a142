import { expect, it } from 'vitest';
import { requireFreeGpus, requireNoGpus } from './held-gpus.ts';

const plain = { image: 'base', shape: { cpus: 1, ram_mb: 256, storage_gb: 1 }, tag: 't', hostname: 'h' };
const order = { ...plain, gpus: { gpus: 1, devices: ['0000:65:00.0'] } };

it('a GPU is one VM’s', () => {
  const other = { id: 'vm-1', gpus: ['0000:17:00.0'] };
  expect(() => requireFreeGpus(order, [other])).not.toThrow();
  expect(() => requireFreeGpus(plain, [{ id: 'vm-2', gpus: order.gpus.devices }])).not.toThrow();
  expect(() => requireFreeGpus(order, [other, { id: 'vm-2', gpus: order.gpus.devices }])).toThrow(
    'GPU "0000:65:00.0" is VM "vm-2"\'s',
  );
});

it('a VM that has one is not saved', () => {
  expect(() => requireNoGpus({ id: 'vm-1', order: plain })).not.toThrow();
  expect(() => requireNoGpus({ id: 'vm-1', order })).toThrow('VM "vm-1" has GPUs');
});
