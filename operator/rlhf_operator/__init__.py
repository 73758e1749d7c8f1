"""The operator: reconciles RLHFJobs into RayClusters with one worker group per role."""
