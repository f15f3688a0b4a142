/** The four routes that ask for no credentials. */
import type { App } from './http-server.ts';
import type { Metrics } from './metrics.ts';

export interface OperationalRoutes {
  version: string;
  metrics: Metrics;
  /** Each resolves when its part is well, and rejects with what is wrong. */
  readinessChecks: Record<string, () => Promise<void>>;
}

const CHECK_MS = 2_000;

export function registerOperationalRoutes(app: App, { version, metrics, readinessChecks }: OperationalRoutes): void {
  const config = { probe: true } as const;
  app.get('/health', { config }, async () => ({ status: 'ok' }));
  app.get('/v1/version', { config }, async () => ({ service: 'fuse-orchestrator', version }));
  app.get('/metrics', { config }, async (_request, reply) =>
    reply.type(metrics.registry.contentType).send(await metrics.registry.metrics()),
  );
  app.get('/ready', { config }, async (_request, reply) => {
    const checks = Object.fromEntries(
      await Promise.all(Object.entries(readinessChecks).map(async ([name, check]) => [name, await verdict(check)])),
    );
    const ready = Object.values(checks).every((text) => text === 'ok');
    return reply.code(ready ? 200 : 503).send({ status: ready ? 'ready' : 'not_ready', checks });
  });
}

async function verdict(check: () => Promise<void>): Promise<string> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${CHECK_MS} ms`)), CHECK_MS);
  });
  try {
    await Promise.race([check(), late]);
    return 'ok';
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    return text.length > 200 ? `${text.slice(0, 200)}…(truncated)` : text;
  } finally {
    clearTimeout(timer);
  }
}
