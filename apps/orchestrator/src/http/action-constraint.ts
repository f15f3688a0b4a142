/**
 * Routes of one path that differ in `?action=`: each is a route of its own, with its schema, body limit and config. A route without the constraint takes the rest:
 * no action, an unknown one, several.
 *
 *   app.post('/v1/things/:id', { constraints: { action: 'fork' }, schema: { body: … } }, …)
 */
import type { IncomingMessage } from 'node:http';

/** The one that is asked for; empty: none, or several. */
export function actionOf(url: string): string {
  const query = url.indexOf('?');
  if (query === -1 || !url.includes('action', query)) return '';
  const actions = new URLSearchParams(url.slice(query + 1)).getAll('action');
  return actions.length === 1 ? (actions[0] ?? '') : '';
}

export const actionConstraint = {
  name: 'action',
  storage: <Handler>() => {
    const handlers = new Map<string, Handler>();
    return {
      get: (action: string): Handler | null => handlers.get(action) ?? null,
      set: (action: string, handler: Handler): void => void handlers.set(action, handler),
    };
  },
  deriveConstraint: (request: IncomingMessage) => actionOf(request.url ?? ''),
  mustMatchWhenDerived: false,
};
