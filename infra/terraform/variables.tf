variable "project" {
  description = "Id of an existing project that has a billing account and nothing else in it."
  type        = string
}

variable "region" {
  description = "Where the janitor's job and workflow live; VMs go where orchestrate.toml says."
  type        = string
  default     = "us-central1"
}

variable "operators" {
  description = "Who runs `orchestrate`: [\"user:me@example.com\"]."
  type        = list(string)
}

variable "ssh_ranges" {
  description = "From where VMs may be reached by SSH: [\"203.0.113.7/32\"]. From elsewhere they cannot."
  type        = list(string)

  validation {
    condition     = length(var.ssh_ranges) > 0 && !contains(var.ssh_ranges, "0.0.0.0/0")
    error_message = "Name your own address ranges: 0.0.0.0/0 would let everybody try."
  }
}

variable "make_network" {
  description = "Whether to make the network `default`. False: the project has it, as new projects do."
  type        = bool
  default     = false
}

variable "billing_account" {
  description = "Id of the billing account (000000-000000-000000) for a budget with alerts. Null: no budget."
  type        = string
  default     = null
}

variable "credit_usd" {
  description = "The credit, as `orchestrate budget set --credit` states it. The budget is 80 % of it: alerts come late."
  type        = number
  default     = 300
}

variable "janitor" {
  description = "Whether a workflow looks for VMs of ours that outlived their deadline, every ten minutes."
  type        = bool
  default     = false
}
