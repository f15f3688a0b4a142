import { AppError, FILE_OPERATION_LIMIT_BYTES, type FileOperation, fileOperations } from '@fuse/contract';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { clientSignal, streamSignal } from '../http/closing.ts';
import type { App } from '../http/http-server.ts';
import { useRawBodies } from '../http/json-bodies.ts';
import type { GuestFileService, Target } from './guest-file-service.ts';
import { incomingUpload } from './incoming-upload.ts';
import { ExtractQuery, guestQuery, PathQuery, WatchQuery, WriteQuery } from './queries.ts';
import { sendFile, sendHead } from './send-file.ts';
import { endWhenStalled } from './stalled-client.ts';

const config = { scope: 'files' } as const;
const params = z.object({ id: z.string() });
type Request = FastifyRequest<{ Params: { id: string } }>;

const FILES = '/v1/environments/:id/files';
const TAR = '/v1/environments/:id/tar';

export function registerGuestFileRoutes(app: App, files: GuestFileService): void {
  downloads(app, files);
  // A scope of its own: bodies are streams here.
  void app.register(async (scope: App) => {
    useRawBodies(scope);
    uploads(scope, files);
  });
  const operations = Object.keys(fileOperations) as FileOperation[]; // its keys are that
  for (const name of operations) operation(app, files, name);
  app.post(
    `${FILES}/:operation`,
    { config, schema: { params: params.extend({ operation: z.string() }) } },
    (request) => {
      throw new AppError('route_not_found', `no file operation "${request.params.operation}"`, {
        hint: `There are ${operations.join(', ')}.`,
      });
    },
  );
}

function downloads(app: App, files: GuestFileService): void {
  app.get(FILES, { config, schema: { params, querystring: PathQuery } }, async (request, reply) => {
    endWhenStalled(request.raw);
    const { path } = request.query;
    return sendFile(files, targetOf(request, reply), { path, range: request.headers.range }, reply);
  });

  app.head(FILES, { config, schema: { params, querystring: PathQuery } }, (request, reply) =>
    sendHead(files, targetOf(request, reply), request.query.path, reply),
  );

  app.get(`${FILES}/watch`, { config, schema: { params, querystring: WatchQuery } }, async (request, reply) => {
    endWhenStalled(request.raw);
    const target = { ...targetOf(request, reply), signal: streamSignal(reply) };
    const lines = await files.open(target, 'watch', guestQuery(request.query));
    return reply.headers({ 'Content-Type': 'application/x-ndjson', 'Cache-Control': 'no-store' }).send(lines);
  });

  app.get(TAR, { config, schema: { params, querystring: PathQuery } }, async (request, reply) => {
    endWhenStalled(request.raw);
    const tar = await files.open(targetOf(request, reply), 'tar', guestQuery(request.query));
    return reply.headers({ 'Content-Type': 'application/x-tar', 'Cache-Control': 'no-store' }).send(tar);
  });
}

function uploads(scope: App, files: GuestFileService): void {
  scope.put(FILES, { config, schema: { params, querystring: WriteQuery } }, async (request, reply) => {
    // What is not said of a file that is replaced stays as it is.
    const query = guestQuery({ ...request.query, keep: true });
    const written = await incomingUpload(request, (upload) =>
      files.write(targetOf(request, reply), { ...upload, query }),
    );
    return reply.code(201).send({ path: request.query.path, ...written });
  });

  scope.put(TAR, { config, schema: { params, querystring: ExtractQuery } }, async (request, reply) =>
    incomingUpload(request, (upload) =>
      files.extract(targetOf(request, reply), { ...upload, query: guestQuery(request.query) }),
    ),
  );
}

/** They change nothing. */
const READS: ReadonlySet<FileOperation> = new Set(['stat', 'list', 'glob', 'search']);

function operation(app: App, files: GuestFileService, name: FileOperation): void {
  app.post(
    `${FILES}/${name}`,
    {
      config: READS.has(name) ? { ...config, audit: false } : config,
      bodyLimit: FILE_OPERATION_LIMIT_BYTES,
      schema: { params, body: fileOperations[name].request },
    },
    (request, reply) => files.operate(targetOf(request, reply), name, request.body),
  );
}

const targetOf = (request: Request, reply: FastifyReply): Target => ({
  tenantId: request.caller.tenantId,
  id: request.params.id,
  signal: clientSignal(reply),
});
