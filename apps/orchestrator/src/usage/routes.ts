import { invalidField } from '@fuse/contract';
import { z } from 'zod';
import type { App } from '../http/http-server.ts';
import { instant } from '../http/instants.ts';
import { queryText } from '../http/pages.ts';
import type { UsageService } from './usage-service.ts';

const config = { scope: 'environments:read' } as const;
const historyQuery = z.object({ from: queryText, to: queryText });

const HOUR_MS = 3_600_000;
const DEFAULT_HOURS = 24;
const MAX_HOURS = 366 * 24;
/** The first instant that may be asked for. */
const FIRST_MS = Date.parse('0001-01-01T00:00:00Z');

export function registerUsageRoutes(app: App, usage: UsageService): void {
  app.get('/v1/usage', { config }, (request) => usage.now(request.caller.tenantId));

  app.get('/v1/usage/history', { config, schema: { querystring: historyQuery } }, (request) =>
    usage.history(request.caller.tenantId, rangeOf(request.query)),
  );
}

/** Whole hours: `from` is that of its hour's beginning. By default the last 24, the current one included. */
function rangeOf(query: z.infer<typeof historyQuery>): { from: Date; to: Date } {
  const to = dateOf('to', query.to) ?? new Date();
  const given = dateOf('from', query.from) ?? new Date(to.getTime() - (DEFAULT_HOURS - 1) * HOUR_MS);
  const from = new Date(Math.max(FIRST_MS, Math.floor(given.getTime() / HOUR_MS) * HOUR_MS));
  if (from > to) throw invalidField('from', 'must be before "to"');
  if (to.getTime() - from.getTime() > MAX_HOURS * HOUR_MS)
    throw invalidField(
      'from',
      `must be at most ${MAX_HOURS} hours before "to"`,
      'Ask for a shorter time, several times.',
    );
  return { from, to };
}

function dateOf(field: string, text: string | undefined): Date | undefined {
  const given = instant(field, text);
  return given === undefined ? undefined : new Date(given);
}
