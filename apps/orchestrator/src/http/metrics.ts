/** Prometheus metrics: one registry per orchestrator, so that several can live in one process. */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { App } from './http-server.ts';

export interface Metrics {
  registry: Registry;
  requests: Counter<'route' | 'method' | 'code'>;
  requestSeconds: Histogram<'route' | 'method'>;
  requestsInFlight: Gauge;
  connectionsOpen: Gauge<'route'>;
  connectionBytes: Counter<'route' | 'direction'>;
  /** Calls that were answered though their audit entry could not be written. */
  auditEntriesLost: Counter;
  startPhaseSeconds: Histogram<'phase'>;
}

export function createMetrics(): Metrics {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const registers = [registry];
  return {
    registry,
    requests: new Counter({
      name: 'orchestrator_http_requests_total',
      help: 'HTTP requests answered',
      labelNames: ['route', 'method', 'code'],
      registers,
    }),
    requestSeconds: new Histogram({
      name: 'orchestrator_http_request_duration_seconds',
      help: 'Time from request to the end of its answer',
      labelNames: ['route', 'method'],
      buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300],
      registers,
    }),
    requestsInFlight: new Gauge({
      name: 'orchestrator_http_requests_in_flight',
      help: 'HTTP requests not answered yet',
      registers,
    }),
    connectionsOpen: new Gauge({
      name: 'orchestrator_connections_open',
      help: 'Terminals, execs and tunnels that are connected',
      labelNames: ['route'],
      registers,
    }),
    connectionBytes: new Counter({
      name: 'orchestrator_connection_bytes_total',
      help: 'Bytes received from and sent to clients of ended connections',
      labelNames: ['route', 'direction'],
      registers,
    }),
    startPhaseSeconds: new Histogram({
      name: 'orchestrator_environment_create_phase_seconds',
      help: 'Time that environments took to be admitted, to wait for room, and for each step of their start',
      labelNames: ['phase'],
      buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60],
      registers,
    }),
    auditEntriesLost: new Counter({
      name: 'orchestrator_audit_entries_lost_total',
      help: 'Audit entries that could not be written to the database and are in the log instead',
      registers,
    }),
  };
}

export function installMetrics(app: App, { requests, requestSeconds, requestsInFlight }: Metrics): void {
  app.addHook('onRequest', async (request, reply) => {
    if (request.routeOptions.config.probe === true) return;
    requestsInFlight.inc();
    // Not onResponse: that never comes for an answer that the client did not wait for.
    reply.raw.once('close', () => {
      requestsInFlight.dec();
      const labels = { route: request.routeOptions.url ?? '(none)', method: request.method };
      requests.inc({ ...labels, code: String(reply.raw.statusCode) });
      requestSeconds.observe(labels, reply.elapsedTime / 1_000);
    });
  });
}
