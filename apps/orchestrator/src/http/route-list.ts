/** The live table of routes: what was registered, in order. The document and the tests of every route read it, so that none can be forgotten. */
import type { RouteOptions } from 'fastify';
import type { ZodType } from 'zod';
import type { App } from './http-server.ts';

export interface ListedRoute {
  method: string;
  /** As the router has it: `/v1/things/:id`. */
  url: string;
  bodyLimitBytes: number | undefined;
  schema: { params?: ZodType; querystring?: ZodType; body?: ZodType };
  config: NonNullable<RouteOptions['config']>;
  /** The `?action=` that it is for. */
  action?: string;
}

declare module 'fastify' {
  interface FastifyInstance {
    routeList: ListedRoute[];
  }
}

export function installRouteList(app: App): void {
  const routes: ListedRoute[] = [];
  app.decorate('routeList', routes);
  app.addHook('onRoute', ({ method: methods, url, bodyLimit, schema, config, constraints }) => {
    const { action } = (constraints ?? {}) as { action?: string }; // action-constraint.ts
    for (const method of [methods].flat())
      routes.push({
        method,
        url,
        bodyLimitBytes: bodyLimit,
        schema: (schema ?? {}) as ListedRoute['schema'], // every route of ours has zod schemas
        config: config ?? {},
        ...(action === undefined ? {} : { action }),
      });
  });
}
