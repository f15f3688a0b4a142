/** What needs a running environment refuses any other with this. */
import { AppError } from '@fuse/contract';
import type { EnvironmentRow } from '../db/schema.ts';

export const notRunning = ({ id, state }: EnvironmentRow): AppError =>
  new AppError('conflict', `vm ${id} is ${state}, not running`, { details: { state } });
