import type { CallOptions } from '../run-outputs.ts';

export interface CopyProgress {
  /** What is being copied now, below the directory that is copied; empty for a single file. */
  path: string;
  files: number;
  bytes: number;
}

export interface CopyOptions extends CallOptions {
  /** After each file, and while large ones are on their way. */
  onProgress?: (progress: CopyProgress) => void;
}

/** Told, never copied: links that lead out of the directory, devices, sockets, pipes. */
export interface Skipped {
  path: string;
  reason: 'link_leads_out' | 'special_file' | 'bad_name';
}

export interface Copied {
  /** Where it is: a file or a directory. */
  path: string;
  files: number;
  directories: number;
  links: number;
  bytes: number;
  skipped: Skipped[];
}

/** More names than that are told by no list. */
const MAX_SKIPPED = 10_000;

export class CopyCount implements Omit<Copied, 'path'> {
  files = 0;
  directories = 0;
  links = 0;
  bytes = 0;
  readonly skipped: Skipped[] = [];
  readonly #onProgress: CopyOptions['onProgress'];

  constructor({ onProgress }: CopyOptions) {
    this.#onProgress = onProgress;
  }

  add(path: string, bytes: number): void {
    this.bytes += bytes;
    this.tell(path);
  }

  tell(path: string): void {
    this.#onProgress?.({ path, files: this.files, bytes: this.bytes });
  }

  skip(path: string, reason: Skipped['reason']): void {
    if (this.skipped.length < MAX_SKIPPED) this.skipped.push({ path, reason });
  }

  at(path: string): Copied {
    const { files, directories, links, bytes, skipped } = this;
    return { path, files, directories, links, bytes, skipped };
  }
}
