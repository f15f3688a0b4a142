/** What an action on a display came to, in the blocks that a model's tool result is made of. */
import type { ComputerResult } from '@fuse/contract';
import { FuseApiError } from './errors.ts';

export type ComputerToolContent =
  | { type: 'text'; text: string }
  | { type: 'image'; source: { type: 'base64'; media_type: 'image/png'; data: string } };

export interface ComputerToolResult {
  content: ComputerToolContent[];
  is_error?: true;
}

/** A wrong action, an environment that does not run, a display that is not up. */
const forTheModel: readonly number[] = [400, 409, 503];

const text = (words: string): ComputerToolContent => ({ type: 'text', text: words });

export async function toolResult(action: Promise<ComputerResult>): Promise<ComputerToolResult> {
  let result: ComputerResult;
  try {
    result = await action;
  } catch (error) {
    if (!(error instanceof FuseApiError) || !forTheModel.includes(error.status)) throw error;
    return { is_error: true, content: [text(error.reason)] };
  }
  const { output, screenshot } = result;
  const content = [
    ...(output ? [text(output)] : []),
    ...(screenshot
      ? [
          {
            type: 'image' as const,
            source: { type: 'base64' as const, media_type: 'image/png' as const, data: screenshot },
          },
        ]
      : []),
  ];
  return { content: content.length === 0 ? [text('done')] : content };
}
