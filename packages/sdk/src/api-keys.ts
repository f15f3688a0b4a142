import { ApiKey, type CreateApiKey, MintedApiKey } from '@fuse/contract';
import { z } from 'zod';
import { FuseError } from './errors.ts';
import { type KeyedOptions, onceUnder } from './once.ts';
import { listOf } from './pages.ts';
import type { CallOptions } from './run-outputs.ts';
import type { Transport } from './transport.ts';

const ApiKeysList = z.object({ api_keys: listOf(ApiKey) });

const PATH = '/v1/api-keys';

/** What clients of a tenant hold in place of the master token. */
export class ApiKeys {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Shows the key this one time. With a label alone it is a plain key: everything of its tenant but execs, terminals and administration. Under an
   * `idempotencyKey` it is made once; when the answer that showed it was lost, that is a FuseError that names its id.
   */
  async create(
    request: string | CreateApiKey = {},
    options: KeyedOptions = {},
  ): Promise<MintedApiKey & { key: string }> {
    const minted = await this.#transport.json(MintedApiKey, {
      method: 'POST',
      path: PATH,
      json: typeof request === 'string' ? { label: request || undefined } : request,
      ...onceUnder(options),
    });
    const { key } = minted;
    if (key === undefined)
      throw new FuseError(`API key ${minted.id} was made before and shown then: revoke it and make another`);
    return { ...minted, key };
  }

  /** The newest first, revoked ones too. */
  async list(options: CallOptions = {}): Promise<ApiKey[]> {
    const call = { method: 'GET', path: PATH, repeat: 'freely', ...options } as const;
    return (await this.#transport.json(ApiKeysList, call)).api_keys;
  }

  /** Refused within a second from now; what is open with it is cut. */
  revoke(id: string, options: CallOptions = {}): Promise<void> {
    const path = `${PATH}/${encodeURIComponent(id)}`;
    return this.#transport.none({ method: 'DELETE', path, repeat: 'freely', ...options });
  }
}
