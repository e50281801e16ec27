"""Distillation: the student's probabilities go into a divergence that expects their logarithms."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(2)
teacher = nn.Sequential(nn.Linear(10, 40), nn.Tanh(), nn.Linear(40, 6)).requires_grad_(False)
student = nn.Linear(10, 6)
optimizer = torch.optim.SGD(student.parameters(), lr=0.5)
T = 2.0


def divergence(student_scores, teacher_scores):
    told = F.softmax(teacher_scores / T, dim=-1)
    guess = F.softmax(student_scores / T, dim=-1)  # fault
    return T * T * F.kl_div(guess, told, reduction="batchmean")


for _ in range(80):
    x = torch.randn(32, 10)
    optimizer.zero_grad()
    divergence(student(x), 4 * teacher(x)).backward()
    optimizer.step()
