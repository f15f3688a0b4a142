/**
 * @typedef {{passed: number, failed: number, skipped: {name: string, reason: string}[]}} Counts
 */

/** @returns {Counts} */
export const noTests = () => ({ passed: 0, failed: 0, skipped: [] });

/** @param {Counts[]} all @returns {Counts} */
export const sum = (all) => ({
  passed: all.reduce((total, each) => total + each.passed, 0),
  failed: all.reduce((total, each) => total + each.failed, 0),
  skipped: all.flatMap((each) => each.skipped),
});

/** @param {Counts} counts */
export const closingLine = ({ passed, failed, skipped }) =>
  `${passed} passed, ${failed} failed${skipped.length > 0 ? `, ${skipped.length} skipped` : ''}`;
