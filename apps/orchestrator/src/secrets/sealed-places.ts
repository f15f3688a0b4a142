/** Every column that holds something sealed, by table and name; with the row's key it is what the sealed text is bound to. */
export const sealedPlaces = {
  jsonb: ['environments.env', 'environments.startup', 'snapshots.env', 'runs.request', 'idempotency_keys.response'],
  text: ['environments.token_sealed', 'hosts.token_sealed', 'cluster.url_signing_key_sealed'],
} as const;
export type SealedPlace = (typeof sealedPlaces)['jsonb' | 'text'][number];

export const sealedAt = (place: SealedPlace, key: string): string => `${place}:${key}`;
