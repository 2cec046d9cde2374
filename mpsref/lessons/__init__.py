"""Exercises of the lessons: :func:`check` tries a learner's function and answers with the smallest case that fails."""

from mpsref.lessons.answer import Answer, check
from mpsref.lessons.exercise import Exercise, Wrong
from mpsref.lessons.exercises import EXERCISES

__all__ = ["EXERCISES", "Answer", "Exercise", "Wrong", "check"]
