import type { ObjectStoreConfig } from './config.ts';
import type { ObjectStore } from './object-store.ts';

/** Opens without touching disk or network; `check()` does that. The adapter's code is loaded here: the AWS SDK only for S3. */
export async function openObjectStore(config: ObjectStoreConfig): Promise<ObjectStore> {
  switch (config.kind) {
    case 'file': {
      const { FileStore } = await import('./file/file-store.ts');
      return new FileStore(config.directory);
    }
    case 's3': {
      const { S3Store } = await import('./s3/s3-store.ts');
      return new S3Store(config);
    }
  }
}
