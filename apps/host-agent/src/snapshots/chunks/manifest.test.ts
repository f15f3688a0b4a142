import { describe, expect, it } from 'vitest';
import { decodeManifest, encodeManifest, type ManifestContent } from './manifest.ts';

const sum = (digit: string) => digit.repeat(64);
const content: Omit<ManifestContent, 'format'> = {
  chunk_prefix: 'snapshots/chunks',
  chunk_bytes: 131_072,
  snapshot: {
    ...{ id: 'snap-1', tag: 'cluster', vm_id: 'vm-1', image: 'base', include_memory: true, created_at: 'now' },
    shape: { cpus: 1, ram_mb: 1, storage_gb: 1 },
    made_on: { image: 'i', kernel: 'k', initramfs: 'r', driver: 'd' },
  },
  parts: [
    {
      name: 'memory',
      size_bytes: 1_048_576,
      chunks: [
        [0, sum('a')],
        [7, sum('b')],
      ],
    },
    { name: 'device', size_bytes: 100, chunks: [[0, sum('c')]] },
    { name: 'disk', size_bytes: 1_073_741_824, chunks: [] },
  ],
};
const encoded = () => JSON.parse(encodeManifest(content).toString());

describe('a manifest', () => {
  it('is read as it was written, whatever the order of its fields', () => {
    expect(decodeManifest(encodeManifest(content))).toEqual({ format: 1, ...content });
    const turned = Object.fromEntries(Object.entries(encoded()).reverse());
    expect(decodeManifest(Buffer.from(JSON.stringify(turned)))).toEqual({ format: 1, ...content });
  });

  const reject = (manifest: unknown) =>
    expect(() =>
      decodeManifest(Buffer.from(typeof manifest === 'string' ? manifest : JSON.stringify(manifest))),
    ).toThrow(expect.objectContaining({ code: 'integrity_error' }));

  it('is refused when anything in it was changed', () => {
    reject('');
    reject('{"format":1');
    reject([]);
    reject({ ...encoded(), format: 2 });
    reject({ ...encoded(), chunk_prefix: 'other' });
    reject({ ...encoded(), chunk_bytes: 65_536 });
    reject({ ...encoded(), digest: sum('0') });
    const { digest: _digest, ...unsigned } = encoded();
    reject(unsigned);
    const text = encodeManifest(content).toString();
    reject(text.replace('"memory"', '"disk"'));
    reject(text.replace(sum('a'), sum('d')));
  });

  const changed = (change: Partial<typeof content>) => encodeManifest({ ...content, ...change });

  it('is refused when its parts do not fit the snapshot, though its digest does', () => {
    const [memory, device, disk] = content.parts as [never, never, never]; // there are three, above
    const refused = [
      { parts: [memory, disk] },
      { parts: [device, memory, disk] },
      { parts: [disk] },
      { snapshot: { ...content.snapshot, include_memory: false } },
      { snapshot: { ...content.snapshot, shape: { cpus: 1, ram_mb: 2, storage_gb: 1 } } },
      { parts: [{ ...(memory as object), chunks: [[8, sum('a')]] } as never, device, disk] },
      {
        parts: [
          {
            ...(memory as object),
            chunks: [
              [1, sum('a')],
              [1, sum('b')],
            ],
          } as never,
          device,
          disk,
        ],
      },
    ];
    for (const change of refused)
      expect(() => decodeManifest(changed(change))).toThrow(expect.objectContaining({ code: 'integrity_error' }));
  });

  it('says nothing of environment variables', () => {
    expect(Object.keys(encoded().snapshot)).not.toContain('env');
  });
});
