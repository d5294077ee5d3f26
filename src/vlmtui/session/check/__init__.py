"""Check: the same cases on several engines, compared stage by stage; and whether an engine sees its images."""
