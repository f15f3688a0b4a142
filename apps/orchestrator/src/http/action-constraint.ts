/**
 * Routes of one path that differ in `?action=`: each is a route of its own, with its schema, body limit and config. A route without the constraint takes the rest:
 * no action, an unknown one, several.
 *
 *   app.post('/v1/things/:id', { constraints: { action: 'fork' }, schema: { body: … } }, …)
 */
import type { IncomingMessage } from 'node:http';

/** The one that is asked for; undefined: none, or several. */
export function actionOf(url: string): string | undefined {
  const query = url.indexOf('?');
  if (query === -1 || !url.includes('action', query)) return undefined;
  const actions = new URLSearchParams(url.slice(query + 1)).getAll('action');
  return actions.length === 1 ? actions[0] : undefined;
}

export const actionConstraint = {
  name: 'action',
  storage: <Handler>() => {
    const handlers = new Map<string, Handler>();
    return {
      get: (action: unknown) => (typeof action === 'string' ? (handlers.get(action) ?? null) : null),
      set: (action: unknown, handler: Handler) => void handlers.set(String(action), handler),
    };
  },
  deriveConstraint: (request: IncomingMessage) => actionOf(request.url ?? ''),
  mustMatchWhenDerived: false,
};
