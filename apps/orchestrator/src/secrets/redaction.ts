/** Secrets that were given with a request, taken out of what its error says: a script may print them, a host may quote them. */
import { AppError } from '@fuse/contract';

/** Shorter ones may be anything. */
const MIN_LENGTH = 8;
export const REDACTED = '[REDACTED]';

/** What `work` throws, without the values of `secrets`; whatever holds none of them is thrown as it is. */
export async function redacting<T>(secrets: Record<string, string>, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw redacted(error, secrets);
  }
}

/** The longest first: one may be a part of another. */
export const secretValues = (secrets: Record<string, string>): string[] =>
  Object.values(secrets)
    .filter(({ length }) => length >= MIN_LENGTH)
    .sort((a, b) => b.length - a.length);

export function redacted(error: unknown, secrets: Record<string, string>): unknown {
  const values = secretValues(secrets);
  return cleanError(error, (text) => values.reduce((rest, value) => rest.replaceAll(value, REDACTED), text));
}

function cleanError(error: unknown, clean: (text: string) => string): unknown {
  if (typeof error === 'string') return clean(error);
  if (!(error instanceof Error)) return error;
  const { message, stack = '' } = error;
  const cause = cleanError(error.cause, clean);
  const { details, hint } = error instanceof AppError ? error : { details: undefined, hint: undefined };
  const texts = [message, stack, hint ?? '', ...Object.values(details ?? {})];
  if (cause === error.cause && texts.every((text) => clean(text) === text)) return error;
  if (!(error instanceof AppError)) return Object.assign(new Error(clean(message), { cause }), { stack: clean(stack) });
  const { code, status, retryAfterSeconds } = error;
  return new AppError(code, clean(message), {
    cause,
    status,
    ...(details === undefined ? {} : { details: cleanValues(details, clean) }),
    ...(hint === undefined ? {} : { hint: clean(hint) }),
    ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
  });
}

const cleanValues = (values: Record<string, string>, clean: (text: string) => string): Record<string, string> =>
  Object.fromEntries(Object.entries(values).map(([key, value]) => [key, clean(value)]));
