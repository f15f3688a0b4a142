import { HostCapacityReport, HostImage } from '@fuse/host-protocol';
import { z } from 'zod';
import type { App, HttpParts } from './server.ts';

export const HEALTH_PATH = '/v1/health';

export function hostRoutes(app: App, { assets, capacity }: HttpParts): void {
  app.get(HEALTH_PATH, { schema: { response: { 200: z.object({ status: z.literal('ok') }) } } }, async () => ({
    status: 'ok' as const,
  }));

  app.get('/v1/capacity', { schema: { response: { 200: HostCapacityReport } } }, async () => capacity());

  app.get('/v1/images', { schema: { response: { 200: z.object({ images: z.array(HostImage) }) } } }, async () => ({
    images: assets.images.map(({ name, digest, sizeBytes, description }) => ({
      name,
      digest,
      size_bytes: sizeBytes,
      ...(description === undefined ? {} : { description }),
    })),
  }));
}
