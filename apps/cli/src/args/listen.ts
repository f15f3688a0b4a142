import { InvalidArgumentError } from 'commander';

export interface ListenAddress {
  host: string;
  port: number;
}

/** `127.0.0.1:0`, `[::1]:6080`, `localhost:6080`; port 0 is any free one. */
export function parseListenAddress(text: string): ListenAddress {
  const [, bracketed, plain, digits] = /^(?:\[([0-9a-fA-F:.]+)\]|([^\s:[\]]+)):(\d{1,5})$/.exec(text) ?? [];
  const host = bracketed ?? plain;
  const port = Number(digits);
  if (host === undefined || port > 65_535)
    throw new InvalidArgumentError('Write HOST:PORT, such as 127.0.0.1:0 or [::1]:6080; port 0 is any free one.');
  return { host, port };
}
