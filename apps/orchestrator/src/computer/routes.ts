/** A display in the environment, as far as there is none: no image of ours has one. What is wrong with a request is told first, as by a server that has. */
import { AppError, ComputerAction, type ComputerStatus, VNC_PROTOCOL } from '@fuse/contract';
import { z } from 'zod';
import type { EnvironmentRow } from '../db/schema.ts';
import type { EnvironmentService } from '../environments/environment-service.ts';
import { notRunning } from '../environments/not-running.ts';
import { type App, LARGE_BODY_LIMIT_BYTES } from '../http/http-server.ts';

const PATH = '/v1/environments/:id/computer';
const STREAM = `${PATH}/stream`;
const params = z.object({ id: z.string() });
const read = { scope: 'environments:read' } as const;
const write = { scope: 'environments:write' } as const;

export function registerComputerRoutes(app: App, environments: EnvironmentService): void {
  const running = async (tenantId: string, id: string): Promise<EnvironmentRow> => {
    const row = await environments.find(tenantId, id);
    if (row.state !== 'running') throw notRunning(row);
    return row;
  };

  app.post(
    PATH,
    {
      config: write,
      bodyLimit: LARGE_BODY_LIMIT_BYTES,
      schema: { params, body: ComputerAction },
      attachValidation: true,
      // Of a body that is no JSON at all, by which clients know it.
      errorHandler: (error) => {
        throw malformed(error) ?? error;
      },
    },
    async (request) => {
      if (request.validationError !== undefined) throw malformed(request.validationError) ?? request.validationError;
      throw notUp(await running(request.caller.tenantId, request.params.id));
    },
  );

  app.get(PATH, { config: read, schema: { params } }, async (request): Promise<ComputerStatus> => {
    const row = await running(request.caller.tenantId, request.params.id);
    return { up: false, width: 0, height: 0, error: notUp(row).message };
  });

  app.get(STREAM, { config: write, schema: { params } }, async () => {
    throw new AppError('invalid_argument', `a display's stream requires Upgrade: ${VNC_PROTOCOL}`, {
      details: { field: 'Upgrade' },
    });
  });
  app.upgrades.add({
    path: STREAM,
    protocols: [VNC_PROTOCOL],
    scope: 'environments:write',
    redeemTicket: () => Promise.reject(new AppError('unauthorized', 'tickets open no display')),
    handle: async ({ caller, params: { id = '' } }) => {
      throw notUp(await running(caller.tenantId, id));
    },
  });
}

const notUp = ({ id, image }: EnvironmentRow): AppError =>
  new AppError('unavailable', `the display of vm ${id} is not up: its image "${image}" has none`, {
    details: { reason: 'no_display' },
    hint: 'No image has a display yet.',
  });

/** Undefined: it is about something else. */
function malformed(error: unknown): AppError | undefined {
  if (!(error instanceof AppError) || error.code !== 'invalid_argument' || error.message.startsWith('malformed'))
    return undefined;
  if (error.details?.field === 'action' && error.message === 'action is required') return error;
  const why = error.message.replace(/^invalid JSON body: /, '');
  return new AppError('invalid_argument', `malformed action: ${why}`, {
    details: error.details ?? { field: '(body)' },
    hint: 'Send one JSON object with an "action".',
    cause: error,
  });
}
