/** The document and its page: made once, when they are first asked for. Open to all, as they hold nothing of anybody. */
import type { App } from '../http/http-server.ts';
import { buildDocument, type OpenApiDocument } from './document.ts';
import { renderPage } from './page.ts';

const config = { auth: 'none' } as const;
/** The page is all there is to it: no script, nothing from anywhere else. */
const POLICY =
  "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

export function registerOpenApiRoutes(app: App): void {
  let made: OpenApiDocument | undefined;
  let page: string | undefined;
  const document = () => {
    made ??= buildDocument(app.routeList);
    return made;
  };
  app.get('/openapi.json', { config }, async () => document());
  app.get('/docs', { config }, async (_request, reply) => {
    page ??= renderPage(document());
    return reply.type('text/html; charset=utf-8').header('Content-Security-Policy', POLICY).send(page);
  });
}
