/** What a run left: files that its globs matched, and its logs. */
import { RunOutput } from '@fuse/contract';
import { z } from 'zod';
import { FuseApiError, FuseError, IntegrityError } from './errors.ts';
import type { Transport } from './transport.ts';

const ListOutputs = z.object({ outputs: z.array(RunOutput) });

export interface CallOptions {
  signal?: AbortSignal;
}

export class RunOutputs {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  async list(runId: string, options: CallOptions = {}): Promise<RunOutput[]> {
    const path = `/v1/runs/${encodeURIComponent(runId)}/outputs`;
    const answer = await this.#transport.json(ListOutputs, { method: 'GET', path, repeat: 'freely', ...options });
    return answer.outputs;
  }

  /**
   * The whole output in memory, its size and sha256 checked (`IntegrityError` otherwise). For large ones use `open`, or
   * `saveOutput` of `@fuse/sdk/node`.
   */
  async download(runId: string, output: RunOutput | string, options: CallOptions = {}): Promise<Uint8Array> {
    const wanted = await this.#find(runId, output, options);
    const response = await this.open(runId, wanted, options);
    const bytes = new Uint8Array(await response.arrayBuffer());
    const sha256 = hex(new Uint8Array(await crypto.subtle.digest('SHA-256', bytes)));
    if (bytes.length !== wanted.size_bytes || sha256 !== wanted.sha256) throw damaged(wanted);
    return bytes;
  }

  /** The response that carries the output, its body unread and unchecked. A URL that has expired is asked for again. */
  async open(runId: string, output: RunOutput | string, options: CallOptions = {}): Promise<Response> {
    const wanted = await this.#find(runId, output, options);
    try {
      return await this.#get(wanted, options);
    } catch (error) {
      if (!(error instanceof FuseApiError) || error.status !== 403) throw error;
      return await this.#get(await this.#find(runId, wanted.path, options), options);
    }
  }

  #get(output: RunOutput, options: CallOptions): Promise<Response> {
    // The URL carries its own permission, and may be another server's: it never sees our token.
    return this.#transport.open({ method: 'GET', path: output.url, anonymous: true, repeat: 'freely', ...options });
  }

  async #find(runId: string, output: RunOutput | string, options: CallOptions): Promise<RunOutput> {
    if (typeof output !== 'string') return output;
    const outputs = await this.list(runId, options);
    const found = outputs.find((each) => each.path === output);
    if (found !== undefined) return found;
    throw new FuseError(
      `run ${runId} has no output ${JSON.stringify(output)}; it has ${outputs.map((each) => JSON.stringify(each.path)).join(', ') || 'none'}`,
    );
  }
}

export const damaged = (output: RunOutput): IntegrityError =>
  new IntegrityError(`output ${JSON.stringify(output.path)}: the bytes that came are not the ones that were saved`);

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
