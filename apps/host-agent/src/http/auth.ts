import { createHash, timingSafeEqual } from 'node:crypto';
import { AppError } from '@fuse/contract';

const digest = (text: string): Buffer => createHash('sha256').update(text).digest();

/** A check of `Authorization: Bearer <token>` that takes as long whatever was sent. */
export function bearerCheck(token: string): (authorization: string | undefined) => void {
  const expected = digest(`Bearer ${token}`);
  return (authorization) => {
    if (authorization !== undefined && timingSafeEqual(digest(authorization), expected)) return;
    throw new AppError('unauthorized', 'the bearer token is missing or wrong');
  };
}
