// Jobs, a row each.
import { hasEnded, type Job } from '../api';
import { ago, duration, moment } from '../format';
import { Badge } from './ui';

export function JobRows({ jobs, now, withMessage = false }: { jobs: Job[]; now: number; withMessage?: boolean }) {
  return (
    <div class="scroll-x" tabIndex={0} role="group" aria-label="Jobs, scrolls">
      <table class="table jobs">
        <thead>
          <tr>
            <th scope="col">Job</th>
            <th scope="col">State</th>
            <th scope="col">Kind</th>
            <th scope="col">Submitted</th>
            <th scope="col" class="num">
              Took
            </th>
            {withMessage && <th scope="col">Message</th>}
          </tr>
        </thead>
        <tbody>
          {jobs.map((job) => (
            <tr key={job.job_id}>
              <th scope="row">
                <a href={`#/jobs/${encodeURIComponent(job.job_id)}`}>{job.name ?? job.job_id}</a>
                {job.name !== null && <span class="soft id"> {job.job_id}</span>}
              </th>
              <td>
                <Badge state={job.state} />
              </td>
              <td class="soft">{job.kind}</td>
              <td class="soft" title={moment(job.submitted_at_ms)}>
                {ago(job.submitted_at_ms, now)}
              </td>
              <td class="num">
                {job.started_at_ms === null ? '–' : duration((hasEnded(job.state) ? (job.finished_at_ms ?? now) : now) - job.started_at_ms)}
              </td>
              {withMessage && (
                <td class="cut soft" title={job.message ?? ''}>
                  {job.message}
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
