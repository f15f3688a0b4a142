import { Readable } from 'node:stream';
import { z } from 'zod';
import { clientSignal } from '../http/closing.ts';
import type { App } from '../http/http-server.ts';
import { incomingBody } from '../http/incoming-body.ts';
import { discardBody, useRawBodies } from '../http/json-bodies.ts';
import type { ExecService } from './exec-service.ts';
import { config, EXECS, flag, logOffset, ofExec, refOf } from './route-parts.ts';

const query = z.object({ offset: logOffset.optional(), end: flag.optional() });
const TCP_PROBE_MS = 30_000;
/** Whoever types may take their time. */
const NEVER_STALLED = 0;

/** Raw bytes, as they come and for as long as they come: they are on their way to the command before the last of them is here. */
export function registerStdinRoute(app: App, execs: ExecService): void {
  // A scope of its own: bodies are streams here.
  void app.register(async (scope: App) => {
    useRawBodies(scope);
    scope.post(
      `${EXECS}/:exec_id/stdin`,
      { config, schema: { params: ofExec, querystring: query } },
      async (request, reply) => {
        const { offset, end = false } = request.query;
        request.raw.socket.setKeepAlive(true, TCP_PROBE_MS);
        const write = (body: Readable) =>
          execs.writeStdin(refOf(request, request.params.id), request.params.exec_id, {
            body,
            offset,
            end,
            signal: clientSignal(reply),
          });
        if (request.body === undefined) return write(Readable.from([]));
        const body = incomingBody(request, NEVER_STALLED);
        try {
          return await write(body);
        } catch (error) {
          body.destroy();
          await discardBody(request.raw);
          throw body.endedBy ?? error;
        }
      },
    );
  });
}
